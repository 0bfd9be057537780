"""The tables as the paper lays them out, in every form, and what is compared with what."""

import csv
import io
import re

import pytest
from studies import add

from cissl import report
from cissl.report import comparing, group_seeds, layout, read_results, tables

METHODS = ("supervised", "pi", "mean-teacher", "mean-teacher+scl")


def groups_of(study):
    return group_seeds(read_results(study)[0])


def grids_of(study, name):
    return layout.grids(layout.compare(groups_of(study), name))


def cifar(study, method="pi", error=0.2, **fields):
    return add(study, error, method, "cifar10", **{"labeled": 4000, "imbalance": 100.0, **fields})


def test_imbalance_factors_are_laid_out_as_table_2(tmp_path):
    for rho, more in ((100.0, 0.1), (10.0, 0.0)):
        cifar(tmp_path, "supervised", 0.30 + more, imbalance=rho)
        for unlabeled in ("same", "uniform", "half"):
            cifar(tmp_path, "pi", 0.25 + more, imbalance=rho, unlabeled=unlabeled)
            cifar(tmp_path, "mean-teacher", 0.20 + more, imbalance=rho, unlabeled=unlabeled)
    (grid,) = grids_of(tmp_path, "imbalance-factor")
    assert grid.rows == (("Supervised",), ("Π model",), ("Mean Teacher",))
    kinds = ("Uniform", "Half", "Same")
    assert grid.columns == tuple((kind, f"ρ = {rho}") for kind in kinds for rho in (10, 100))
    supervised, pi, teacher = grid.cells
    assert [cell.ours.mean for cell in supervised] == pytest.approx([30, 40] * 3)  # one run beside every kind
    assert [cell.paper for cell in supervised] == [(23.03, 1.65), (36.71, supervised[1].paper[1])] * 3
    assert [cell.mark for cell in teacher] == ["best"] * 6
    assert [cell.mark for cell in pi] == ["second"] * 6
    assert pi[3].paper == (38.84, 4.17)
    assert pi[3].difference == pytest.approx(35 - 38.84)
    assert pi[3].deviations_off == pytest.approx((35 - 38.84) / 4.17)


def test_reweighting_marks_the_best_of_a_row_within_each_kind_as_table_3(tmp_path):
    errors = {"ce": 0.4, "in": 0.3, "focal": 0.5, "cb": 0.35}
    for unlabeled in ("uniform", "same"):
        for reweight, error in errors.items():
            cifar(tmp_path, "pi", error, reweight=reweight, unlabeled=unlabeled)
    (grid,) = grids_of(tmp_path, "reweighting")
    assert [column[1] for column in grid.columns] == ["CE", "IN", "Focal", "CB"] * 2
    assert [cell.mark for cell in grid.cells[0]] == ["", "best", "", ""] * 2


def test_label_counts_have_a_table_per_data_set_as_table_4(tmp_path):
    for labeled in (4000, 1000):
        cifar(tmp_path, labeled=labeled)
    add(tmp_path, dataset="svhn", labeled=250, imbalance=100.0)
    cifar10, svhn = grids_of(tmp_path, "label-count")
    assert cifar10.columns == (("Same", "1000 labels"), ("Same", "4000 labels"))
    assert svhn.columns == (("Same", "250 labels"),)
    assert (cifar10.dataset, svhn.dataset) == ("cifar10", "svhn")


def detection(study, method, value, seed=0):
    folder = add(study, 0.2, method, "voc", seed)
    told = folder / "result.json"
    found = {"map": value, "average_precision": [value] * 3, "minor_ap": value / 2, "major_ap": value}
    content = re.sub(r'"student": \{.*?\}, "teacher"', '"student": @, "teacher"', told.read_text(), flags=re.DOTALL)
    told.write_text(content.replace("@", str(found).replace("'", '"')))


def test_detection_is_better_higher_and_stands_beside_table_5(tmp_path):
    for seed in range(3):
        detection(tmp_path, "supervised", 0.70 + seed / 100, seed)
        detection(tmp_path, "csd+scl", 0.72 + seed / 100, seed)
    (grid,) = grids_of(tmp_path, "detection")
    assert grid.columns == (("Supervised",), ("CSD+SCL",))
    supervised, csd = grid.cells[0]
    assert (supervised.ours.mean, csd.ours.mean) == pytest.approx((71, 73))
    assert (supervised.paper, csd.paper) == ((70.2, None), (72.6, 0.1))
    assert (supervised.mark, csd.mark) == ("", "best")
    assert supervised.deviations_off is None
    groups = groups_of(tmp_path)
    assert "mAP in %" in tables.markdown(groups, "detection")
    assert "Bold: highest of its row" in tables.markdown(groups, "detection")
    compared = layout.compare(groups, "detection")
    (row,) = comparing.against(compared, comparing.baseline_of(compared))
    assert row.baseline.method == "supervised"
    assert (row.paired.difference, row.paired.better) == (pytest.approx(2), 3)
    rows = list(csv.DictReader(io.StringIO(report.results_csv(groups, "detection"))))
    assert (rows[0]["map_mean"], rows[0]["error_mean"], rows[0]["classes"]) == ("71.0000", "", "")
    assert (rows[0]["paper_mean"], rows[0]["paper_std"]) == ("70.20", "")


def test_a_study_of_ones_own_has_what_it_varies_as_rows(tmp_path):
    for unlabeled in ("same", "uniform"):
        for beta in (0.5, 0.9):
            fields = {"unlabeled": unlabeled, "options": {"beta": beta}}
            add(tmp_path, 0.1 + beta / 10, "mean-teacher+scl", **fields)
        add(tmp_path, 0.3, "mean-teacher", unlabeled=unlabeled, steps=5000)
    add(tmp_path, 0.4, "supervised", labeled_batch=100)
    (grid,) = grids_of(tmp_path, "mine")
    assert grid.heads == ("Unlabeled", "Beta")
    assert grid.columns == (("Supervised",), ("Mean Teacher",), ("MT+SCL",))
    assert grid.rows == (("Uniform", "0.5"), ("Uniform", "0.9"), ("Same", "0.5"), ("Same", "0.9"))
    means = [[round(cell.ours.mean) for cell in row] for row in grid.cells]
    assert means == [[40, 30, 15], [40, 30, 19]] * 2  # what has no β, or no unlabeled data, beside each
    assert [cell.mark for cell in grid.cells[0]] == ["", "second", "best"]


def test_a_study_that_varies_nothing_shows_major_and_minor_classes(tmp_path):
    for method in METHODS:
        add(tmp_path, 0.2, method, "digits")
    (grid,) = grids_of(tmp_path, "mine")
    assert grid.rows == (("all",), ("major",), ("minor",))


# ---- Against a baseline


def toy_study(study, seeds=6):
    for seed in range(seeds):
        for i, method in enumerate(METHODS):
            add(study, 0.3 - 0.02 * i + 0.001 * seed * (i + 1), method, seed=seed)
    return groups_of(study)


def test_the_baseline_is_mean_teacher_else_supervised_else_asked_for(tmp_path):
    compared = layout.compare(toy_study(tmp_path, 1), "toy")
    assert comparing.baseline_of(compared) == "mean-teacher"
    assert comparing.baseline_of(compared, "pi") == "pi"
    with pytest.raises(ValueError, match="did you mean 'mean-teacher'"):
        comparing.baseline_of(compared, "mean-techer")


def test_only_seeds_that_both_finished_are_compared(tmp_path):
    for seed, (ours, theirs) in enumerate([(0.2, 0.3), (0.1, "diverged"), ("unfinished", 0.1), (0.25, 0.2)]):
        add(tmp_path, ours, "pi", seed=seed)
        add(tmp_path, theirs, "mean-teacher", seed=seed)
    compared = layout.compare(groups_of(tmp_path), "toy")
    (row,) = comparing.against(compared, "mean-teacher")
    assert (row.paired.seeds, row.paired.better, row.paired.difference) == (2, 1, pytest.approx(-2.5))


def test_statistics_as_text(tmp_path):
    groups = toy_study(tmp_path)
    compared = layout.compare(groups, "toy")
    rows = comparing.against(compared, "mean-teacher")
    markdown = tables.markdown_statistics(rows)
    assert "Against Mean Teacher, seed by seed" in markdown
    assert re.search(
        r"\| Two moons \| MT\+SCL \| −1\.75 \| −1\.95 … −1\.55 \| < 0\.001 \| 0\.031 \| 6 of 6 \|", markdown
    )
    found = list(csv.DictReader(io.StringIO(comparing.statistics_csv(rows))))
    assert [row["method"] for row in found] == ["supervised", "pi", "mean-teacher+scl"]
    assert float(found[2]["difference"]) == pytest.approx(-1.75)
    assert (found[2]["metric"], found[2]["better"], found[2]["seeds"]) == ("error", "6", "6")
    assert comparing.statistics_csv([]).count("\n") == 1


# ---- LaTeX


def test_latex_is_of_booktabs_and_balanced(tmp_path):
    groups = toy_study(tmp_path)
    compared = layout.compare(groups, "toy")
    text = tables.latex(groups, "toy") + tables.latex_statistics(comparing.against(compared, "mean-teacher"))
    for environment in ("table", "tabular"):
        assert text.count(rf"\begin{{{environment}}}") == text.count(rf"\end{{{environment}}}") == 2
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 2
    assert text.count("{") == text.count("}")
    assert r"\textbf{25.00 $\pm$ 0.75}" in text
    assert text.isascii()  # any LaTeX reads it
    for table in re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        lines = [line for line in table[1].splitlines() if line.endswith(r"\\")]
        assert lines
        assert {line.count(" & ") + 1 for line in lines} == {len(table[0])}


def test_latex_escapes_what_it_must():
    assert tables.escaped(r"50% of a_b & {c} \ ρ") == r"50\% of a\_b \& \{c\} \textbackslash{} $\rho$"


# ---- The command


@pytest.fixture
def study(tmp_path):
    toy_study(tmp_path / "toy", 2)
    return tmp_path / "toy"


@pytest.mark.parametrize(
    ("form", "begins"), [("csv", "table,dataset"), ("markdown", "| Data set"), ("latex", "% needs")]
)
def test_a_form_is_printed_or_written(cissl, study, form, begins):
    code, out, _ = cissl("report", "toy", "--out", study, "--format", form)
    assert code == 0
    assert out.startswith(begins)
    assert not (study / "report.html").exists()
    code, _, err = cissl("report", "toy", "--out", study, "--format", form, "--to", study / "deep" / "table")
    assert (code, (study / "deep" / "table").read_text()) == (0, out)
    assert "Written" in err


def test_figures_in_other_formats(cissl, study):
    code, _, _ = cissl("report", "toy", "--out", study, "--figures", "pdf")
    assert code == 0
    assert {path.suffix for path in (study / "figures").iterdir()} == {".pdf"}
    for name in ("recall", "validation", "figure1"):
        assert (study / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--figures", "jpg"), "unknown format of figures 'jpg'"),
        (("--to", "file"), "--to is the file for one --format"),
        (("--baseline", "pie"), "did you mean 'pi'?"),
        (("--format", "csv", "--to", "toy"), "error: "),
    ],
)
def test_mistakes_are_sentences(cissl, study, options, said):
    code, _, err = cissl("report", "toy", "--out", study, *options)
    assert code == 2
    assert said in err
