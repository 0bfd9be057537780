"""What stands where in a table: settings against methods, as the paper has them; a cell is a group of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cissl.report import names
from cissl.report.results import Group, Summary, flat, variants

TITLES = {
    "toy": "Table 1. Toy sets",
    "imbalance-factor": "Table 2. Imbalance factors",
    "reweighting": "Table 3. Re-weighting",
    "label-count": "Table 4. Numbers of labels",
    "detection": "Table 5. Object detection",
    "fashion": "Fashion-MNIST: few, very imbalanced labels",
    "digits": "Digits: the paper's comparison on scikit-learn's small images",
}
# The paper's tables with a row per method: what goes across, within each kind of unlabeled data.
ACROSS = {"imbalance-factor": "imbalance", "label-count": "labeled", "reweighting": "reweight"}
UNVARIED = ("toy", "fashion", "detection")
PAPER_STEPS = {"toy": 5000, **dict.fromkeys(ACROSS, 500_000), "detection": 120_000}
SECOND_BEST = (
    "imbalance-factor",
    "label-count",
)  # and studies of one's own: the paper's other tables mark the best only

Values = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Column:
    """A method; one that was run in several ways that no setting tells apart has a variant, such as "steps=100"."""

    method: str
    variant: str = ""

    @property
    def name(self) -> str:
        method = names.method_name(self.method)
        return f"{method} ({self.variant})" if self.variant else method


@dataclass(frozen=True)
class Setting:
    """A data set and the values of the fields that the study varies, each with its name."""

    dataset: str
    values: Values = ()

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(names.value_name(field, value) for field, value in self.values)

    @property
    def name(self) -> str:
        return ", ".join((names.dataset_name(self.dataset), *self.labels))


@dataclass(frozen=True)
class Comparison:
    """Settings against methods. A method that a setting's field says nothing to, as unlabeled data to supervised
    learning, is the same group of runs in each."""

    study: str
    fields: tuple[str, ...]
    settings: tuple[Setting, ...]
    columns: tuple[Column, ...]
    groups: dict[tuple[Setting, Column], Group]
    planned: int  # seeds: all that any method was given


@dataclass(frozen=True)
class Cell:
    """Mean and deviation, the paper's beside it, what is to be said about the seeds ("" when all finished), and
    whether it is the "best" or the "second" of those it is compared with."""

    ours: Summary
    paper: tuple[float, float | None] | None = None
    seeds: str = ""
    mark: str = ""
    diverged: int = 0
    done: int = 0

    @property
    def difference(self) -> float | None:
        return None if self.ours.mean is None or self.paper is None else self.ours.mean - self.paper[0]

    @property
    def deviations_off(self) -> float | None:
        """The difference in standard deviations of the paper."""
        if self.difference is None or self.paper is None or not self.paper[1]:
            return None
        return self.difference / self.paper[1]


@dataclass(frozen=True)
class Grid:
    """The table of one data set. `heads` name what the labels of a row are; a column's heading may have two lines."""

    dataset: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[tuple[str, ...], ...]
    cells: tuple[tuple[Cell | None, ...], ...]


# ---- Settings against methods


def compare(groups: Sequence[Group], study: str) -> Comparison:
    fields = _fields(groups, study)
    labels = variants(groups, ("dataset", "method", *fields))
    by_column: dict[Column, list[Group]] = {}
    for group, variant in zip(groups, labels, strict=True):
        by_column.setdefault(Column(group.method, variant), []).append(group)
    columns = sorted(by_column, key=lambda column: (names.method_order(column.method), column.variant))
    settings = _settings(groups, fields)
    cells: dict[tuple[Setting, Column], Group] = {}
    for setting in settings:
        for column in columns:
            for group in by_column[column]:
                if _belongs(group, setting):
                    cells.setdefault((setting, column), group)
    return Comparison(study, fields, tuple(settings), tuple(columns), cells, count_seeds(groups))


def count_seeds(groups: Sequence[Group]) -> int:
    """How many seeds the study has: all that any of its methods was given."""
    return len({result.seed for group in groups for result in group.results})


def _fields(groups: Sequence[Group], study: str) -> tuple[str, ...]:
    """What the settings are told apart by: the paper's choice; of one's own study what varies within a method."""
    if study in ACROSS:
        return ("unlabeled", ACROSS[study])
    if study in UNVARIED:
        return ()
    seen: dict[tuple[str, str], dict[str, set[str]]] = {}
    for group in groups:
        of_method = seen.setdefault((group.dataset, group.method), {})
        for name, value in flat(group.run).items():
            of_method.setdefault(name, set()).add(str(value))
    varying = {name for fields in seen.values() for name, values in fields.items() if len(values) > 1}
    return tuple(sorted(varying - {"dataset", "method"}, key=names.field_order))


def _settings(groups: Sequence[Group], fields: tuple[str, ...]) -> list[Setting]:
    """Those of the groups that have a value of their own for every field; where there are none, of what there is."""
    telling = [group for group in groups if not any(_indifferent(group, field) for field in fields)]
    told = {group.dataset for group in telling}
    telling += [group for group in groups if group.dataset not in told]
    found: dict[Setting, None] = {}
    for group in telling:
        described = flat(group.run)
        found[Setting(group.dataset, tuple((field, described.get(field)) for field in fields))] = None
    order = {name: i for i, name in enumerate(dict.fromkeys(group.dataset for group in groups))}
    return sorted(found, key=lambda s: (order[s.dataset], [names.value_order(*value) for value in s.values]))


def _indifferent(group: Group, field: str) -> bool:
    """Whether the runs say nothing of a field: an option they lack, or unlabeled data that they do not look at."""
    described = flat(group.run)
    return field not in described or (field == "unlabeled" and described.get("unlabeled_batch") == 0)


def _belongs(group: Group, setting: Setting) -> bool:
    described = flat(group.run)
    return group.dataset == setting.dataset and all(
        _indifferent(group, field) or described[field] == value for field, value in setting.values
    )


# ---- Grids of cells


def grids(comparison: Comparison, metric: str | None = None, network: str = "student") -> list[Grid]:
    """The study's table, one grid per data set. Without a metric: the error, or the mAP, and where there is one
    setting only also that of the major and the minor class, as in the paper's Table 1."""
    datasets = dict.fromkeys(setting.dataset for setting in comparison.settings)
    made = _methods_down if comparison.study in ACROSS else _methods_across
    return [made(comparison, dataset, metric, network) for dataset in datasets]


def _methods_across(comparison: Comparison, dataset: str, metric: str | None, network: str) -> Grid:
    settings = [setting for setting in comparison.settings if setting.dataset == dataset]
    split = not comparison.fields and metric is None
    rows: list[tuple[str, ...]] = []
    cells: list[tuple[Cell | None, ...]] = []
    for setting in settings:
        for classes in ("all", "major", "minor") if split else ("all",):
            rows.append((*setting.labels, classes) if not comparison.fields else setting.labels)
            row = [_cell(comparison, setting, column, classes, metric, network) for column in comparison.columns]
            if split and classes != "all" and all(cell is None or cell.ours.mean is None for cell in row):
                rows.pop()
                continue
            cells.append(tuple(_marked(row, higher_is_better(comparison, metric), _second(comparison))))
    heads = tuple(names.field_name(field) for field in comparison.fields) or ("Classes",)
    columns = tuple((column.name,) for column in comparison.columns)
    return Grid(dataset, heads, tuple(rows), columns, tuple(cells))


def _methods_down(comparison: Comparison, dataset: str, metric: str | None, network: str) -> Grid:
    """As the paper's Tables 2 to 4: marked down a column, but re-weightings across each kind of unlabeled data."""
    settings = [setting for setting in comparison.settings if setting.dataset == dataset]
    used = [c for c in comparison.columns if any((s, c) in comparison.groups for s in settings)]
    rows = [[_cell(comparison, setting, column, "all", metric, network) for setting in settings] for column in used]
    higher, second = higher_is_better(comparison, metric), _second(comparison)
    if comparison.study == "reweighting":
        kinds = [setting.values[0] for setting in settings]
        for row in rows:
            for kind in dict.fromkeys(kinds):
                places = [i for i, k in enumerate(kinds) if k == kind]
                for i, cell in zip(places, _marked([row[i] for i in places], higher, second), strict=True):
                    row[i] = cell
    else:
        across = [_marked(list(column), higher, second) for column in zip(*rows, strict=True)]
        rows = [list(row) for row in zip(*across, strict=True)]
    columns = tuple(setting.labels for setting in settings)
    return Grid(dataset, ("Method",), tuple((c.name,) for c in used), columns, tuple(tuple(row) for row in rows))


def _cell(
    comparison: Comparison, setting: Setting, column: Column, classes: str, metric: str | None, network: str
) -> Cell | None:
    group = comparison.groups.get((setting, column))
    if group is None:
        return None
    unlabeled = next((str(value) for field, value in setting.values if field == "unlabeled"), None)
    compared = metric is None and network == "student"
    return Cell(
        ours=group.percent(metric or group.classes[classes], network),
        paper=group.paper(comparison.study, classes, unlabeled) if compared else None,
        seeds=seeds_text(group, comparison.planned),
        diverged=group.count("diverged"),
        done=group.count("done"),
    )


def higher_is_better(comparison: Comparison, metric: str | None = None) -> bool:
    detected = any(group.detects for group in comparison.groups.values())
    return detected if metric is None else not metric.endswith("error")


def _second(comparison: Comparison) -> bool:
    return comparison.study in SECOND_BEST or comparison.study not in PAPER_STEPS


def _marked(cells: Sequence[Cell | None], higher: bool, second: bool) -> list[Cell | None]:
    """Compared as shown: of those that read the same all are the best."""
    sign = -1 if higher else 1
    shown = [None if cell is None or cell.ours.mean is None else sign * round(cell.ours.mean, 2) for cell in cells]
    ranked = sorted({value for value in shown if value is not None})
    if sum(value is not None for value in shown) < 2:
        return list(cells)
    marks = {ranked[0]: "best", **({ranked[1]: "second"} if second and len(ranked) > 2 else {})}
    return [
        cell if cell is None or value is None else replace(cell, mark=marks.get(value, ""))
        for cell, value in zip(cells, shown, strict=True)
    ]


def seeds_text(group: Group, planned: int) -> str:
    """Such as "4 of 5 seeds, 1 diverged"; "" when every seed that the study has finished."""
    done = group.count("done")
    if done == planned:
        return ""
    counts = {status: group.count(status) for status in ("diverged", "failed", "unfinished")}
    counts["missing"] = planned - len(group.results)
    return ", ".join([f"{done} of {planned} seeds", *(f"{n} {status}" for status, n in counts.items() if n)])


# ---- What the numbers are


def title(study: str, described: str = "") -> str:
    return TITLES.get(study) or described or study


def marked_along(comparison: Comparison) -> str:
    """What the best is the best of."""
    return "column" if comparison.study in SECOND_BEST else "row"


def metric_name(groups: Sequence[Group]) -> str:
    return "mAP" if any(group.detects for group in groups) else "Error"


def caption(groups: Sequence[Group], study: str) -> str:
    """What the numbers are. The count of seeds is named when it is the same everywhere."""
    planned = count_seeds(groups)
    seeds = "the seeds that finished"
    if all(group.count("done") == planned for group in groups):
        seeds = f"{planned} seed{'s' if planned > 1 else ''}"
    chosen = any(result.record.get("best_step") is not None for group in groups for result in group.results)
    measured = "student at its best validation" if chosen else "student after the last iteration"
    text = f"{metric_name(groups)} in %, mean ± std (ddof 1) over {seeds}, {measured}."
    steps = {int(group.run["steps"]) for group in groups if "steps" in group.run} - {PAPER_STEPS.get(study)}
    if steps and study in PAPER_STEPS:
        text += f" Trained for {', '.join(map(str, sorted(steps)))} steps, the paper for {PAPER_STEPS[study]}."
    return text
