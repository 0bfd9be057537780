"""Each method against a baseline, setting by setting, over the seeds that both finished."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from cissl.names import unknown
from cissl.report.layout import Column, Comparison, Setting
from cissl.report.results import Group
from cissl.report.statistics import WILCOXON_FROM, Paired, paired

BASELINES = ("mean-teacher", "supervised")  # the first that a study has is what the others are compared with
COLUMNS = (
    *("dataset", "setting", "method", "baseline", "metric", "seeds", "difference", "low", "high"),
    *("p_t", "p_wilcoxon", "better", "equal"),
)


@dataclass(frozen=True)
class Against:
    """One method in one setting against the baseline."""

    setting: Setting
    column: Column
    baseline: Column
    metric: str
    paired: Paired


def baseline_of(comparison: Comparison, asked: str | None = None) -> str | None:
    """The method to compare with; None where there is only one."""
    methods = list(dict.fromkeys(column.method for column in comparison.columns))
    if asked is not None and asked not in methods:
        raise unknown("baseline, which must be a method of the study:", asked, methods)
    return asked or next((method for method in (*BASELINES, *methods) if method in methods), None)


def against(comparison: Comparison, baseline: str | None) -> list[Against]:
    found = []
    for setting in comparison.settings:
        for column in comparison.columns:
            theirs = _partner(comparison, setting, column, baseline)
            if theirs is None or column == theirs or (setting, column) not in comparison.groups:
                continue
            group = comparison.groups[setting, column]
            metric = group.classes["all"]
            pairs = _paired(group, comparison.groups[setting, theirs], metric)
            found.append(Against(setting, column, theirs, metric, pairs))
    return found


def _partner(comparison: Comparison, setting: Setting, column: Column, baseline: str | None) -> Column | None:
    """The baseline's column in a setting: that of the same variant where it has it."""
    there = [c for c in comparison.columns if c.method == baseline and (setting, c) in comparison.groups]
    return next((c for c in there if c.variant == column.variant), there[0] if there else None)


def _paired(ours: Group, baseline: Group, metric: str) -> Paired:
    mine, theirs = ours.percents(metric), baseline.percents(metric)
    seeds = sorted(mine.keys() & theirs.keys())
    return paired([mine[s] for s in seeds], [theirs[s] for s in seeds], higher_is_better=ours.detects)


# ---- As text


def headings(rows: Sequence[Against]) -> list[str]:
    tests = ["p (t)", *(["p (Wilcoxon)"] if any(row.paired.p_wilcoxon is not None for row in rows) else [])]
    return ["Setting", "Method", "Difference", "95 % interval", *tests, "Better in seeds"]


def cells(row: Against, setting: str, wilcoxon: bool) -> list[str]:
    pairs = row.paired
    tests = [probability(pairs.p_t), *([probability(pairs.p_wilcoxon)] if wilcoxon else [])]
    equal = f", {pairs.equal} equal" if pairs.equal else ""
    better = f"{pairs.better} of {pairs.seeds}{equal}" if pairs.seeds else "none in common"
    return [setting, row.column.name, signed(pairs.difference), interval(pairs), *tests, better]


def shown(rows: Sequence[Against]) -> list[list[str]]:
    """A line per comparison; the data set is named where there are several, or nothing else is."""
    wilcoxon, several = "p (Wilcoxon)" in headings(rows), len({row.setting.dataset for row in rows}) > 1
    named = [row.setting.name if several or not row.setting.values else ", ".join(row.setting.labels) for row in rows]
    return [cells(row, name, wilcoxon) for row, name in zip(rows, named, strict=True)]


def interval(pairs: Paired) -> str:
    return "–" if pairs.low is None or pairs.high is None else f"{signed(pairs.low)} … {signed(pairs.high)}"


def signed(number: float | None) -> str:
    """With a real minus sign; 0.00 has none."""
    if number is None:
        return "–"
    return "0.00" if round(number, 2) == 0 else f"{number:+.2f}".replace("-", "−")


def probability(p: float | None) -> str:
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def title(rows: Sequence[Against]) -> str:
    return f"Against {Column(rows[0].baseline.method).name}, seed by seed" if rows else ""


def caption(rows: Sequence[Against]) -> str:
    what, better = ("mAP", "above") if rows and rows[0].metric == "map" else ("Error", "below")
    return (
        f"{what} in percentage points, {better} 0 is better; mean over the seeds that both finished, with the 95 % "
        "interval of the paired t distribution, two-sided p of the paired t test and, from "
        f"{WILCOXON_FROM} seeds that differ on, of Wilcoxon's signed ranks. Not corrected for many comparisons."
    )


def statistics_csv(rows: Sequence[Against]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        p = row.paired
        numbers = [*(p.difference, p.low, p.high), *(p.p_t, p.p_wilcoxon)]
        values = "; ".join(f"{field}={value}" for field, value in row.setting.values)
        method, baseline = (f"{c.method} ({c.variant})" if c.variant else c.method for c in (row.column, row.baseline))
        writer.writerow(
            [row.setting.dataset, values, method, baseline, row.metric, p.seeds]
            + ["" if number is None else f"{number:.6g}" for number in numbers]
            + [p.better, p.equal]
        )
    return text.getvalue()
