"""From the results of a study to its table, its figures and its results.csv. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from rich.console import Console

from cissl.coefficients import coefficient_difference, student_coefficient, teacher_coefficient
from cissl.protocol import class_counts
from cissl.report import charts, comparing, figures, names, tables
from cissl.report.figures import Boundary
from cissl.report.layout import Comparison, compare
from cissl.report.page import page
from cissl.report.results import Group, Study, group_seeds, read_results, read_study, results_csv, write_text

__all__ = [
    "FORMATS",
    "group_seeds",
    "page",
    "read_results",
    "read_study",
    "results_csv",
    "text",
    "write_report",
    "write_text",
]

FORMATS = ("html", "csv", "markdown", "latex")
PANELS = 12  # of a figure
MOMENTUM, DECAY = 0.9, 0.95  # of the supplement's figure, and of Mean Teacher's training
COEFFICIENT_STEPS = 200  # enough to see both ends; the supplement says that a longer run looks the same
BOUNDARY_ARRAYS = ("x", "y", "probability", "labeled_points", "labeled_classes", "unlabeled_points")
# CIFAR-10 with 4000 labels at ρ = 10: the setting of Figure 3, with the size of the unlabeled set it leads to.
LABELED, UNLABELED, IMBALANCE, CLASSES = 4000, 14389, 10.0, 10


def write_report(
    folder: str | Path,
    console: Console,
    only: Collection[str] | None = None,
    study: str | None = None,
    baseline: str | None = None,
    pictures: Sequence[str] = figures.FORMATS,
) -> list[Path]:
    """Prints the study's table and statistics, writes them, the page and every figure there is data for; returns what
    it wrote.

    `only` are the names of the runs to report, None for all that the folder holds; `baseline` is what the other
    methods are compared with; `pictures` are the formats of the figures.
    """
    folder = Path(folder)
    known, groups, skipped = _read(folder, only, study)
    for line in skipped:
        console.print(line, style="yellow", markup=False, highlight=False)
    compared = compare(groups, known.name)
    rows = comparing.against(compared, comparing.baseline_of(compared, baseline))
    console.print(tables.terminal(groups, console.width, known.name, known.title))
    console.print(tables.terminal_statistics(rows))
    written = [
        write_text(page(known, groups, skipped, baseline), folder / "report.html"),
        write_text(results_csv(groups, known.name), folder / "results.csv"),
        write_text(comparing.statistics_csv(rows), folder / "statistics.csv"),
    ]
    with figures.written_as(pictures):
        return written + _figures(folder, groups, compared)


def text(
    folder: str | Path,
    format: str,
    only: Collection[str] | None = None,
    study: str | None = None,
    baseline: str | None = None,
) -> tuple[str, list[str]]:
    """The report in one of FORMATS, and a line for each folder that could not be read."""
    known, groups, skipped = _read(Path(folder), only, study)
    if format == "html":
        return page(known, groups, skipped, baseline), skipped
    if format == "csv":
        return results_csv(groups, known.name), skipped
    compared = compare(groups, known.name)
    rows = comparing.against(compared, comparing.baseline_of(compared, baseline))
    if format == "markdown":
        parts = [tables.markdown(groups, known.name), tables.markdown_statistics(rows)]
    else:
        parts = [tables.latex(groups, known.name, known.title), tables.latex_statistics(rows)]
    return "\n".join(part for part in parts if part), skipped


def _read(folder: Path, only: Collection[str] | None, study: str | None) -> tuple[Study, list[Group], list[str]]:
    results, skipped = read_results(folder, only)
    known = read_study(folder)
    return replace(known, name=study or known.name), group_seeds(results), skipped


def _figures(folder: Path, groups: Sequence[Group], compared: Comparison) -> list[Path]:
    written: list[Path] = []
    if panels := recall_panels(compared):
        what = "average precision" if any(group.detects for group in groups) else "recall"
        written += figures.recall_figure(panels, what, folder / "figures" / "recall")
    if panels := curve_panels(compared):
        what = "validation mAP in %" if any(group.detects for group in groups) else "validation error in %"
        written += figures.curve_figure(panels, what, folder / "figures" / "validation")
    if (counted := folder / "analysis" / "class_distribution.npz").is_file():
        with np.load(counted) as arrays:
            counts = {part.capitalize(): arrays[part] for part in ("labeled", "unlabeled")}
            written += figures.objects_figure(
                arrays["class_names"].tolist(), counts, folder / "figures" / "class-distribution"
            )
    if compared.study == "toy":
        if groups:
            written += figures.boundary_figure(boundaries(groups), folder / "figures" / "figure1")
        written += coefficients(folder / "figures" / "coefficients")
        written += imbalance_types(folder / "figures" / "imbalance-types")
        written += measured(folder)
    return written


Panels = dict[str, dict[str, tuple[list[float], list[float]]]]


def recall_panels(compared: Comparison) -> Panels:
    """Labeled samples and mean recall in % of each class, by setting and method."""

    def line(group: Group) -> tuple[list[float], list[float]] | None:
        drawn = charts.ranked(group)
        if "studentRecall" not in drawn:
            return None
        return drawn["labeled"], (100 * np.array(drawn["studentRecall"], dtype=np.float64).mean(axis=0)).tolist()

    return _panels(compared, line)


def curve_panels(compared: Comparison) -> Panels:
    """The student's validations, the mean over the seeds that finished, by setting and method."""

    def line(group: Group) -> tuple[list[float], list[float]] | None:
        drawn = [charts.validations(result) for result in group.results if result.status == "done"]
        seen = [(found["validated"], found["student"]) for found in drawn if "student" in found]
        seen = [(steps, values) for steps, values in seen if steps == seen[0][0]]
        return (seen[0][0], np.mean([values for _, values in seen], axis=0).tolist()) if seen else None

    return _panels(compared, line)


def _panels(compared: Comparison, line: Callable[[Group], tuple[list[float], list[float]] | None]) -> Panels:
    """The first settings of very many: a figure is no book."""
    panels: Panels = {}
    for setting in compared.settings[:PANELS]:
        drawn = {c.name: line(compared.groups[setting, c]) for c in compared.columns if (setting, c) in compared.groups}
        if lines := {name: points for name, points in drawn.items() if points is not None}:
            panels[setting.name] = lines
    return panels


def boundaries(groups: Sequence[Group]) -> list[list[Boundary]]:
    """The panels of Figure 1, a row per data set. All of a row show one seed, so one split: the lowest of those
    that most methods finished."""
    methods = sorted({group.method for group in groups}, key=names.method_order)
    rows = []
    for dataset in dict.fromkeys(group.dataset for group in groups):
        by_method: dict[str, Group] = {}
        for group in groups:
            if group.dataset == dataset:
                by_method.setdefault(group.method, group)
        seed = _shown_seed(list(by_method.values()))
        rows.append([_panel(dataset, method, by_method.get(method), seed) for method in methods])
    return rows


def coefficients(stem: str | Path) -> list[Path]:
    """The supplement's figure, with plain SGD for comparison."""
    steps = COEFFICIENT_STEPS
    difference = {
        f"momentum δ = {MOMENTUM}, γ = {DECAY}": coefficient_difference(steps, MOMENTUM, DECAY),
        f"plain SGD (δ = 0), γ = {DECAY}": coefficient_difference(steps, 0.0, DECAY),
    }
    student, teacher = student_coefficient(steps, MOMENTUM), teacher_coefficient(steps, MOMENTUM, DECAY)
    return figures.coefficient_figure(student, teacher, difference, stem)


def imbalance_types(stem: str | Path) -> list[Path]:
    """The paper's Figure 3 for CIFAR-10."""
    rho = {"Uniform": 1.0, "Half": IMBALANCE / 2, "Same": IMBALANCE}
    counts = {f"Labeled (ρ = {IMBALANCE:g})": class_counts(LABELED, IMBALANCE, CLASSES)}
    counts |= {f"{name} ($ρ_u$ = {r:g})": class_counts(UNLABELED, r, CLASSES) for name, r in rho.items()}
    return figures.imbalance_figure(counts, stem)


def measured(folder: Path) -> list[Path]:
    """Figures of what the study measured besides its runs: analysis/*.npz, where present."""
    written: list[Path] = []
    gradients, suppression = folder / "analysis" / "gradient_difference.npz", folder / "analysis" / "suppression.npz"
    if gradients.is_file():
        with np.load(gradients) as arrays:
            wanted = ("points", "confidence", "exact_norm", "predicted_norm", "cosine")
            columns = {name: arrays[name] for name in wanted}
        written += figures.gradient_difference_figure(**columns, stem=folder / "figures" / "gradient-difference")
    if suppression.is_file():
        with np.load(suppression) as arrays:
            weights = {str(label): row for label, row in zip(arrays["labels"], arrays["weights"], strict=True)}
            ratio = arrays["ratio"]
        written += figures.suppression_figure(ratio, weights, folder / "figures" / "suppression")
    return written


def _shown_seed(groups: Sequence[Group]) -> int | None:
    finished = [result.seed for group in groups for result in group.results if result.status == "done"]
    return min(finished, key=lambda seed: (-finished.count(seed), seed), default=None)


def _panel(dataset: str, method: str, group: Group | None, seed: int | None) -> Boundary:
    title = f"{names.dataset_name(dataset)}, {names.method_name(method)}"
    result = next((r for r in group.results if r.seed == seed), None) if group else None
    if result is None:
        return Boundary(title, None, "not run yet", seed)
    if result.status == "diverged":
        return Boundary(title, None, f"diverged at step {result.diverged_at}", seed)
    if result.status != "done":
        return Boundary(title, None, "unfinished", seed)
    arrays, reason = _load(result.folder / "boundary.npz")
    return Boundary(title, arrays, reason, seed)


def _load(path: Path) -> tuple[dict[str, np.ndarray] | None, str]:
    try:
        # Opened here: numpy leaves the file open when it turns out to be torn.
        with path.open("rb") as file, np.load(file) as arrays:
            missing = [name for name in BOUNDARY_ARRAYS if name not in arrays]
            if missing:
                return None, f"{path.name} lacks\n{', '.join(missing)}"
            return {name: arrays[name] for name in BOUNDARY_ARRAYS}, ""
    except FileNotFoundError:
        return None, f"no {path.name}"
    except (ValueError, OSError, EOFError, BadZipFile):
        return None, f"{path.name}\ncannot be read"
