"""The report on study folders made here: what is averaged, what is said, and which pictures appear."""

import csv
import io
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from cissl.report import boundaries, figures, group_seeds, read_results, results_csv, write_report, write_text
from cissl.report.names import method_name
from cissl.report.paper import lookup
from cissl.report.tables import markdown, terminal

PAPER_METHODS = ("supervised", "pi", "mean-teacher", "mean-teacher+scl")


def description(**fields: Any) -> dict[str, Any]:
    run = {"dataset": "two-moons", "method": "pi", "reweight": "ce", "unlabeled": "same", "imbalance": 5.0}
    run |= {"labeled": 12, "seed": 0, "steps": 5000, "network": "mlp", "options": {}} | fields
    return run


def add_run(
    study: Path,
    *,
    errors: tuple[float | None, ...] | None = (0.25, 0.01, 0.5),
    status: str = "done",
    diverged_at: int | None = None,
    **fields: Any,
) -> Path:
    """A run's folder as the study writes it; errors of all, major and minor classes, None leaves it unfinished."""
    folder = study / f"run{len(list(study.iterdir())):03d}" if study.exists() else study / "run000"
    folder.mkdir(parents=True)
    run = description(**fields)
    (folder / "run.json").write_text(json.dumps(run))
    if errors is None:
        return folder
    # A diverged run has no metrics. Should its folder hold some all the same, they must not count.
    metrics = dict(zip(("error", "major_error", "minor_error"), errors, strict=True))
    record = {"run": run, "status": status, "diverged_at": diverged_at, "student": metrics, "teacher": metrics}
    (folder / "result.json").write_text(json.dumps(record))
    return folder


def add_boundary(folder: Path, n_classes: int = 2) -> None:
    random = np.random.default_rng(0)
    np.savez(
        folder / "boundary.npz",
        x=np.linspace(-2, 3, 50),
        y=np.linspace(-1, 2, 40),
        probability=random.uniform(0.3, 1, (40, 50)).astype(np.float16),
        winner=random.integers(0, n_classes, (40, 50), dtype=np.uint8),
        labeled_points=random.uniform(-1, 2, (12, 2)),
        labeled_classes=random.integers(0, n_classes, 12),
        unlabeled_points=random.uniform(-1, 2, (3000, 2)),
        unlabeled_classes=random.integers(0, n_classes, 3000),
    )


def add_gradient_difference(study: Path, n: int = 200) -> None:
    random = np.random.default_rng(0)
    (study / "analysis").mkdir(parents=True, exist_ok=True)
    confidence = random.uniform(0.5, 1, n)
    norm = 1 - confidence
    norm[0] = 0  # happens: the gradient of a saturated softmax underflows
    np.savez(
        study / "analysis" / "gradient_difference.npz",
        points=random.standard_normal((n, 2)),
        confidence=confidence,
        exact_norm=norm,
        predicted_norm=1.1 * norm,
        cosine=np.full(n, 0.9),
    )


def add_suppression(study: Path) -> None:
    (study / "analysis").mkdir(parents=True, exist_ok=True)
    ratio = np.linspace(0, 1, 11)
    weights = np.stack([0.5 ** (1 - ratio), ratio])
    np.savez(
        study / "analysis" / "suppression.npz", ratio=ratio, labels=["exponential, β = 0.5", "linear"], weights=weights
    )


def as_printed(study: Path, width: int = 80) -> str:
    console = plain_console(width)
    console.print(terminal(group_seeds(read_results(study)[0]), width))
    return printed(console)


def plain_console(width: int) -> Console:
    return Console(width=width, file=io.StringIO(), force_terminal=False, color_system=None)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_importing_the_report_imports_no_torch() -> None:
    code = "import sys, cissl.report; sys.exit('torch' in sys.modules or 'matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (("toy", "two-moons", "mean-teacher+scl", "ce", "same", 5.0, 12, "all"), (24.39, 15.14)),
        (("toy", "four-spins", "supervised", "ce", "same", 5, 11, "minor"), (49.39, 25.61)),
        (("imbalance-factor", "cifar10", "pi", "ce", "half", 100, 4000, ""), (38.84, 4.17)),
        (("detection", "voc07", "csd+scl"), (72.6, 0.1)),
        (("detection", "voc07", "csd"), (72.3, None)),
        (("toy", "two-moons", "ict", "ce", "same", 5, 12, "all"), None),
        (("toy", "two-moons", "pi", "ce", "same", 10, 12, "all"), None),
    ],
)
def test_the_papers_numbers(cell: Any, expected: tuple[float, float | None] | None) -> None:
    assert lookup(*cell) == expected


def test_names_are_the_papers_and_those_of_other_combinations_follow() -> None:
    names = [
        method_name(m) for m in ("pi", "mean-teacher", "mean-teacher+scl", "vat+em+sntg", "pi+scl", "supervised+em")
    ]
    assert names == ["Π model", "Mean Teacher", "MT+SCL", "VAT+EM+SNTG", "Π+SCL", "Supervised+EM"]
    assert method_name("something-new+scl") == "something-new+SCL"


def test_mean_and_deviation_over_the_seeds_that_finished_only(tmp_path: Path) -> None:
    for seed, error in reversed(list(enumerate((0.10, 0.20, 0.60)))):
        add_run(tmp_path, seed=seed, errors=(error, 0.0, None if seed == 1 else 0.5))
    add_run(tmp_path, seed=3, status="diverged", diverged_at=312)
    add_run(tmp_path, seed=4, errors=None)
    (group,) = group_seeds(read_results(tmp_path)[0])
    assert [result.seed for result in group.results] == [0, 1, 2, 3, 4]
    assert [group.count(status) for status in ("done", "diverged", "unfinished")] == [3, 1, 1]
    mean, std = group.percent("error")
    assert mean == pytest.approx(30)
    assert std == pytest.approx(statistics.stdev([10, 20, 60]))
    assert group.percent("minor_error") == (None, None)  # a mean over other seeds than its neighbours' would mislead


def test_one_seed_has_no_deviation_and_none_has_no_mean(tmp_path: Path) -> None:
    add_run(tmp_path, method="supervised", errors=(0.25, 0.01, 0.5))
    add_run(tmp_path, method="pi", status="diverged", diverged_at=7)
    supervised, pi = group_seeds(read_results(tmp_path)[0])
    assert supervised.percent("error") == (25.0, None)
    assert pi.percent("error") == (None, None)
    rows = list(csv.DictReader(results_csv([supervised, pi]).splitlines()))
    assert (rows[0]["error_mean"], rows[0]["error_std"]) == ("25.0000", "")
    assert (rows[3]["error_mean"], rows[3]["seeds_done"], rows[3]["seeds_diverged"]) == ("", "0", "1")


def test_results_csv_has_the_papers_columns_and_ours(tmp_path: Path) -> None:
    for seed in range(2):
        add_run(tmp_path, seed=seed, errors=(0.2 + 0.1 * seed, 0.0, 0.5))
    path = write_text(results_csv(group_seeds(read_results(tmp_path)[0])), tmp_path / "results.csv")
    lines = path.read_text().splitlines()
    assert lines[0] == (
        "table,dataset,algorithm,reweight,unlabeled,imbalance,labels,classes,error_mean,error_std,map_mean,map_std,"
        "seeds_done,seeds_diverged,paper_mean,paper_std"
    )
    assert lines[1] == "toy,two-moons,pi,ce,same,5,12,all,25.0000,7.0711,,,2,0,41.57,8.82"
    assert [line.split(",")[7] for line in lines[1:]] == ["all", "major", "minor"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results.csv", "run000", "run001"]  # nothing temporary stays


def test_an_interrupted_write_leaves_the_old_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_run(tmp_path)
    groups = group_seeds(read_results(tmp_path)[0])
    path = tmp_path / "results.csv"
    path.write_text("old")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_text(results_csv(groups), path)
    assert path.read_text() == "old"


def test_a_broken_folder_is_left_out_and_said(tmp_path: Path) -> None:
    add_run(tmp_path, seed=0)
    (add_run(tmp_path, seed=1) / "result.json").write_text('{"run": {"dataset"')
    (add_run(tmp_path, seed=2) / "result.json").write_text(json.dumps({"run": {"seed": 2}, "status": "done"}))
    (add_run(tmp_path, seed=3) / "result.json").write_text(json.dumps({"run": description(seed=3), "status": "lost"}))
    add_run(tmp_path, seed=4, errors=(float("nan"), 0.0, 0.0))
    add_run(tmp_path, seed=0)  # the first once more
    (tmp_path / "figures").mkdir()
    results, skipped = read_results(tmp_path)
    assert [result.folder.name for result in results] == ["run000"]
    for line, reason in zip(skipped, ("no valid JSON", "lacks dataset", "'lost'", "nan", "as run000"), strict=True):
        assert reason in line
    with pytest.raises(ValueError, match="run the study first"):
        read_results(tmp_path / "nowhere")


def test_settings_of_one_method_are_never_averaged_together(tmp_path: Path) -> None:
    add_run(tmp_path, seed=0, method="ict", errors=(0.1, 0.0, 0.1))
    add_run(tmp_path, seed=0, method="ict", steps=100, errors=(0.5, 0.0, 0.1))
    add_run(tmp_path, seed=0, method="pi", options={"w_max": 20.0}, errors=(0.3, 0.0, 0.1))
    groups = group_seeds(read_results(tmp_path)[0])
    assert len(groups) == 3
    heading = markdown(groups).splitlines()[0]
    assert re.findall(r"ICT \(.*?\)|Π model", heading) == ["Π model", "ICT (steps=100)", "ICT (steps=5000)"]
    rows = list(csv.DictReader(results_csv(groups).splitlines()))
    assert {row["algorithm"] for row in rows} == {"pi", "ict (steps=100)", "ict (steps=5000)"}


def test_table_for_the_as_printed(tmp_path: Path) -> None:
    for seed in range(5):
        for method in reversed(PAPER_METHODS):
            bad = method == "supervised" and seed == 2
            errors = (0.2, 0.0, 0.5) if method == "mean-teacher+scl" else (0.3, 0.01, 0.6)
            add_run(tmp_path, method=method, seed=seed, errors=errors, status="diverged" if bad else "done")
    text = as_printed(tmp_path)
    lines = [line.rstrip() for line in text.splitlines()]
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].split() == ["Supervised", "Π", "model", "Mean", "Teacher", "MT+SCL"]
    everything = next(i for i, line in enumerate(lines) if line.startswith("all"))
    assert lines[everything].endswith("* 20.00 ±  0.00")
    assert re.split(r"\s{2,}", lines[everything + 1].strip())[:2] == ["paper", "25.06 ± 12.43"]
    assert lines[everything + 1].endswith("24.39 ± 15.14")
    assert lines[everything + 2].strip() == "4 of 5 seeds"
    assert lines[everything + 3].strip() == "1 diverged"
    assert text.count("*") == 4  # one per row, and where it is explained
    assert "mean ± std (ddof 1) over the seeds that finished, student after the last iteration." in " ".join(
        text.split()
    )


def test_table_of_many_methods_goes_on_below(tmp_path: Path) -> None:
    for method in (*PAPER_METHODS, "vat+em", "vat+em+sntg", "pseudo-label", "ict", "pi+scl"):
        add_run(tmp_path, method=method)
    names = ["Supervised", "Π model", "Mean Teacher", "VAT+EM", "VAT+EM+SNTG", "Pseudo-Label", "ICT", "MT+SCL", "Π+SCL"]
    narrow, wide = as_printed(tmp_path, 80), as_printed(tmp_path, 200)
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 80
    assert re.findall("|".join(map(re.escape, sorted(names, key=len, reverse=True))), narrow) == names
    assert any(all(name in line for name in names) for line in wide.splitlines())
    assert "over 1 seed," in narrow


def test_markdown_table(tmp_path: Path) -> None:
    for seed in range(2):
        add_run(tmp_path, method="mean-teacher+scl", seed=seed, errors=(0.1 + seed / 10, 0.0, 0.5))
        add_run(tmp_path, method="ict", seed=seed, errors=(0.3, 0.0, 0.6) if seed else None)
        add_run(tmp_path, dataset="four-spins", labeled=11, method="ict", errors=(0.3, 0.2, 0.6), seed=seed)
    lines = markdown(group_seeds(read_results(tmp_path)[0])).splitlines()
    assert lines[0] == "| Data set | Classes | ICT | MT+SCL |"
    assert lines[2] == "| Two moons | all | 30.00, 1 of 2 seeds, 1 unfinished | **15.00 ± 7.07** (24.39 ± 15.14) |"
    assert lines[3].count("**") == 4  # both are the lowest
    assert lines[5] == "| Four spins | all | 30.00 ± 0.00 | – |"
    assert "(ddof 1)" in lines[-1]


def test_the_lowest_is_marked_among_several_only_and_as_shown(tmp_path: Path) -> None:
    add_run(tmp_path, method="supervised", errors=(0.200001, 0.1, 0.5))
    assert "**" not in markdown(group_seeds(read_results(tmp_path)[0]))
    add_run(tmp_path, method="pi", status="diverged")
    assert "**" not in markdown(group_seeds(read_results(tmp_path)[0]))
    add_run(tmp_path, method="ict", errors=(0.2, 0.2, 0.5))
    lines = markdown(group_seeds(read_results(tmp_path)[0])).splitlines()
    assert [line.count("**") for line in lines[2:5]] == [4, 2, 4]


def test_a_seed_that_was_never_started_is_missing(tmp_path: Path) -> None:
    add_run(tmp_path, method="supervised", seed=0)
    add_run(tmp_path, method="supervised", seed=1)
    add_run(tmp_path, method="pi", seed=0)
    assert "1 of 2 seeds, 1 missing" in markdown(group_seeds(read_results(tmp_path)[0]))


def test_figure_1_shows_one_seed_per_row_and_says_why_a_panel_is_empty(tmp_path: Path) -> None:
    for method in PAPER_METHODS:
        for seed in range(3):
            bad = method == "pi" and seed == 0
            add_boundary(add_run(tmp_path, method=method, seed=seed, status="diverged" if bad else "done"))
    fields: dict[str, Any] = {"dataset": "four-spins", "labeled": 11}
    add_boundary(add_run(tmp_path, **fields, method="supervised", seed=0), n_classes=4)
    add_run(tmp_path, **fields, method="pi", seed=0, status="diverged", diverged_at=312)
    add_run(tmp_path, **fields, method="mean-teacher", seed=0)
    two_moons, four_spins = boundaries(group_seeds(read_results(tmp_path)[0]))
    assert [panel.seed for panel in two_moons] == [1] * 4  # Π diverged with seed 0
    assert all(panel.arrays is not None for panel in two_moons)
    assert [panel.title for panel in four_spins][1] == "Four spins, Π model"
    assert [panel.reason for panel in four_spins] == ["", "diverged at step 312", "no boundary.npz", "not run yet"]
    assert check_pictures(figures.boundary_figure([two_moons, four_spins], tmp_path / "new" / "figure1"), "figure1")


@pytest.mark.parametrize("content", [b"", b"torn", b"PK\x03\x04torn"])
def test_a_torn_boundary_leaves_its_panel_empty(tmp_path: Path, content: bytes) -> None:
    (add_run(tmp_path) / "boundary.npz").write_bytes(content)
    ((panel,),) = boundaries(group_seeds(read_results(tmp_path)[0]))
    assert panel.arrays is None
    assert "cannot be read" in panel.reason


def test_report_writes_what_there_is_data_for(tmp_path: Path) -> None:
    for method in PAPER_METHODS:
        add_boundary(add_run(tmp_path, method=method))
    add_gradient_difference(tmp_path)
    add_suppression(tmp_path)
    console = plain_console(80)
    written = write_report(tmp_path, console, study="toy")
    assert written[:3] == [tmp_path / name for name in ("report.html", "results.csv", "statistics.csv")]
    written = written[2:]
    stems = ["figure1", "coefficients", "imbalance-types", "gradient-difference", "suppression"]
    assert [path.stem for path in written[1::2]] == stems
    for i, stem in enumerate(stems):
        assert check_pictures(written[1 + 2 * i : 3 + 2 * i], stem)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {path.name for path in written[1:]}
    assert "MT+SCL" in printed(console)


def test_report_of_a_study_without_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (add_run(tmp_path) / "result.json").write_text("[]")
    console = plain_console(120)
    written = write_report(tmp_path, console)
    assert "figure1" not in {path.stem for path in written}
    text = printed(console)
    assert "run000 left out: result.json holds a list" in text
    assert "No finished run yet" in text
    assert capsys.readouterr() == ("", "")


def test_figure_1_has_up_up_and_low_confidence_dark(tmp_path: Path) -> None:
    arrays = {"x": np.linspace(0, 1, 20), "y": np.linspace(0, 1, 20), "probability": np.ones((20, 20), np.float16)}
    arrays["probability"][15:] = 0.5  # at the large y
    arrays |= {"labeled_points": np.array([[0.1, 0.1]]), "labeled_classes": np.array([1])}
    arrays |= {"unlabeled_points": np.array([[0.1, 0.1]])}
    png, _ = figures.boundary_figure([[figures.Boundary("One", arrays)]], tmp_path / "one")
    with Image.open(png) as image:
        pixels = np.asarray(image.convert("RGB"), dtype=int)
    middle = pixels[:, pixels.shape[1] // 3]
    top, bottom = middle[len(middle) // 5], middle[4 * len(middle) // 5]
    assert top.sum() < 200 < 600 < bottom.sum()
    assert top[0] > 100 > top[1]  # red


def test_near_and_far_by_confidence() -> None:
    confidence = np.linspace(1.0, 0.5, 100)
    near, far = figures.near_and_far(confidence)
    assert near.nonzero()[0].tolist() == list(range(90, 100))
    assert far.nonzero()[0].tolist() == list(range(50))


def test_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    counts = {"Labeled": np.array([5, 2]), "Same": np.array([50, 20])}
    one, two = (figures.imbalance_figure(counts, tmp_path / name / "bars") for name in ("a", "b"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


def check_pictures(paths: list[Path], stem: str) -> bool:
    """A PNG that is not blank, and an SVG below 1 MB."""
    png, svg = paths
    assert (png.name, svg.name) == (f"{stem}.png", f"{stem}.svg")
    with Image.open(png) as image:
        assert len(image.convert("RGB").resize((200, 100)).getcolors(20000) or []) > 20
    assert svg.stat().st_size < 1_000_000
    return "<svg" in svg.read_text(encoding="utf-8")[:2000]


def test_a_shorter_study_is_not_shown_as_the_papers(tmp_path: Path) -> None:
    for seed in (0, 1):
        add_run(tmp_path, seed=seed, steps=200)
    assert "Trained for 200 steps, the paper for 5000." in markdown(group_seeds(read_results(tmp_path)[0]))
