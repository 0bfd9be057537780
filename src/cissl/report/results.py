"""From the folders of a study to one group of seeds per cell of a table, and to results.csv."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cissl.report import names
from cissl.report.paper import lookup

# The columns of paper.csv, then what is ours.
COLUMNS = (
    *("table", "dataset", "algorithm", "reweight", "unlabeled", "imbalance", "labels", "classes"),
    *("error_mean", "error_std", "map_mean", "map_std"),
    *("seeds_done", "seeds_diverged", "paper_mean", "paper_std"),
)

# The paper's Table 1 splits the error of a toy set; its other tables have the error over all classes only.
CLASSES = {"all": "error", "major": "major_error", "minor": "minor_error"}
DETECTED = {"all": "map", "major": "major_ap", "minor": "minor_ap"}  # of a detector, where more is better
WHOLE = ("imbalance-factor", "label-count", "reweighting", "detection")  # the paper's tables without such a split
PUBLISHED_AS = {"voc": "voc07"}  # data sets that have another name in the paper's tables


@dataclass(frozen=True)
class Result:
    """One run as its folder tells it. `student` holds the metrics of a finished run; a diverged one has none."""

    folder: Path
    run: dict[str, Any]
    status: str  # "done", "diverged", "failed" or "unfinished"
    diverged_at: int | None = None
    student: dict[str, Any] | None = None
    teacher: dict[str, Any] | None = None
    record: dict[str, Any] = field(default_factory=dict)  # the whole of result.json
    reason: str = ""  # why it failed

    @property
    def seed(self) -> int:
        return int(self.run["seed"])


class Summary(NamedTuple):
    """Mean and standard deviation (ddof = 1) in %; None where there is nothing, or one value only, to take it of."""

    mean: float | None
    std: float | None


@dataclass(frozen=True)
class Group:
    """The runs that differ in nothing but their seed, in the order of the seeds."""

    results: tuple[Result, ...]

    @property
    def run(self) -> dict[str, Any]:
        return self.results[0].run

    @property
    def dataset(self) -> str:
        return str(self.run["dataset"])

    @property
    def method(self) -> str:
        return str(self.run["method"])

    def count(self, status: str) -> int:
        return sum(result.status == status for result in self.results)

    @property
    def detects(self) -> bool:
        """Whether its metric is a mAP in place of an error."""
        return any(result.student is not None and "map" in result.student for result in self.results)

    @property
    def classes(self) -> dict[str, str]:
        """The metric of all classes, the major and the minor one."""
        return DETECTED if self.detects else CLASSES

    def percents(self, metric: str, network: str = "student") -> dict[int, float]:
        """The metric in % of each seed that finished and has it."""
        measured = {r.seed: getattr(r, network) or {} for r in self.results if r.status == "done"}
        numbers = {seed: metrics.get(metric) for seed, metrics in measured.items()}
        return {seed: 100 * float(number) for seed, number in numbers.items() if number is not None}

    def percent(self, metric: str, network: str = "student") -> Summary:
        """The metric over the seeds that finished. A diverged seed has none, and is counted instead."""
        numbers = list(self.percents(metric, network).values())
        if not numbers or len(numbers) < self.count("done"):
            return Summary(None, None)
        return Summary(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None)

    def paper(self, table: str, classes: str, unlabeled: str | None = None) -> tuple[float, float | None] | None:
        """The paper's figure for the same cell. What learns from no unlabeled data stands beside any kind of it."""
        run, dataset = self.run, PUBLISHED_AS.get(self.dataset, self.dataset)
        if table == "detection":
            return lookup(table, dataset, self.method) if classes == "all" else None
        return lookup(
            table,
            dataset,
            self.method,
            run.get("reweight"),
            unlabeled or run.get("unlabeled"),
            run.get("imbalance"),
            run.get("labeled"),
            "" if table in WHOLE and classes == "all" else classes,
        )


def read_results(folder: str | Path, only: Collection[str] | None = None) -> tuple[list[Result], list[str]]:
    """Every run of a study's folder, or those named, and a line for each folder that could not be read.

    A study may be half done: a run with a description and no result yet is "unfinished".
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"expected a folder of runs, found none at {folder}: run the study first, or name its folder")
    results: dict[str, Result] = {}
    skipped: list[str] = []
    for path in sorted(folder.iterdir()):
        if not any((path / name).is_file() for name in ("run.json", "result.json")):
            continue
        if only is not None and path.name not in only:
            continue
        try:
            result = _read(path)
        except (ValueError, KeyError, TypeError, OSError) as error:
            skipped.append(f"{path.name} left out: {error}")
            continue
        description = json.dumps(result.run, sort_keys=True)
        if description in results:
            skipped.append(f"{path.name} left out: the same run as {results[description].folder.name}")
            continue
        results[description] = result
    return list(results.values()), skipped


@dataclass(frozen=True)
class Study:
    """What study.json says of a study; a folder without one has its name only."""

    name: str
    title: str = ""
    command: str = ""
    runs: tuple[str, ...] = ()


def read_study(folder: str | Path) -> Study:
    folder = Path(folder)
    if not (folder / "study.json").is_file():
        return Study(folder.name)
    told = _json(folder / "study.json")
    name, title, command = (str(told.get(key, "")) for key in ("study", "title", "command"))
    return Study(name or folder.name, title, command, tuple(map(str, told.get("runs") or ())))


def group_seeds(results: Iterable[Result]) -> list[Group]:
    """Results that differ in their seed only, together; data sets and methods in the paper's order."""
    together: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda r: r.seed):
        rest = {name: value for name, value in result.run.items() if name != "seed"}
        together.setdefault(json.dumps(rest, sort_keys=True), []).append(result)
    groups = [Group(tuple(together[key])) for key in sorted(together)]
    return sorted(groups, key=lambda g: (names.dataset_order(g.dataset), names.method_order(g.method)))


def variants(groups: Sequence[Group], fields: Sequence[str]) -> list[str]:
    """For each group what tells it from the others with the same `fields`, such as "steps=100"; else "".

    Two settings of one method are two columns, never one mean over both.
    """
    described = [flat(group.run) for group in groups]
    labels = []
    for mine in described:
        alike = [other for other in described if all(other.get(field) == mine.get(field) for field in fields)]
        differing = [k for k in sorted({k for run in alike for k in run}) if len({str(r.get(k)) for r in alike}) > 1]
        labels.append(", ".join(f"{name}={mine.get(name)}" for name in differing))
    return labels


def results_csv(groups: Sequence[Group], table: str = "toy") -> str:
    """The text of results.csv: the paper's columns, then seeds and the paper's figures."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    described = ("dataset", "method", "reweight", "unlabeled", "imbalance", "labeled")
    for group, variant in zip(groups, variants(groups, described), strict=True):
        writer.writerows(_rows(group, variant, table))
    return text.getvalue()


def write_text(text: str, path: str | Path) -> Path:
    """Written beside and renamed: an interrupted report leaves what was there."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
    return path


def _rows(group: Group, variant: str, table: str) -> list[dict[str, str]]:
    rows = []
    for classes, metric in group.classes.items():
        summary, paper = group.percent(metric), group.paper(table, classes)
        error, detected = (Summary(None, None), summary) if group.detects else (summary, Summary(None, None))
        rows.append(
            {
                "table": table,
                "dataset": group.dataset,
                "algorithm": f"{group.method} ({variant})" if variant else group.method,
                "reweight": str(group.run.get("reweight", "")),
                "unlabeled": str(group.run.get("unlabeled", "")),
                "imbalance": f"{group.run['imbalance']:g}" if "imbalance" in group.run else "",
                "labels": str(group.run.get("labeled", "")),
                "classes": "" if table in WHOLE and classes == "all" else classes,
                "error_mean": _digits(error.mean, 4),
                "error_std": _digits(error.std, 4),
                "map_mean": _digits(detected.mean, 4),
                "map_std": _digits(detected.std, 4),
                "seeds_done": str(group.count("done")),
                "seeds_diverged": str(group.count("diverged")),
                "paper_mean": _digits(paper[0], 2) if paper else "",
                "paper_std": _digits(paper[1], 2) if paper else "",
            }
        )
    return rows


def _digits(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _read(folder: Path) -> Result:
    if not (folder / "result.json").is_file():
        run = _description(_json(folder / "run.json"))
        if (folder / "failure.json").is_file():
            return Result(folder, run, "failed", reason=str(_json(folder / "failure.json").get("reason", "")))
        return Result(folder, run, "unfinished")
    record = _json(folder / "result.json")
    run, status = _description(record.get("run")), record.get("status")
    if status == "diverged":
        return Result(folder, run, "diverged", diverged_at=record.get("diverged_at"), record=record)
    if status != "done":
        raise ValueError(f'result.json says status {status!r}, expected "done" or "diverged"')
    student, teacher = (_metrics(record.get(network)) for network in ("student", "teacher"))
    number = student.get("map", student.get("error"))
    if not isinstance(number, int | float) or not math.isfinite(number):
        raise ValueError(
            f"result.json says done, but the student's {'mAP' if 'map' in student else 'error'} is {number!r}"
        )
    return Result(folder, run, "done", student=student, teacher=teacher or None, record=record)


def _metrics(measured: Any) -> dict[str, Any]:
    return measured if isinstance(measured, dict) else {}


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} is no valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} holds a {type(content).__name__}, expected an object")
    return content


def _description(run: Any) -> dict[str, Any]:
    if not isinstance(run, dict):
        raise ValueError(f"the run's description is {run!r}, expected an object")
    missing = [name for name in ("dataset", "method", "seed") if name not in run]
    if missing:
        raise ValueError(f"the run's description lacks {', '.join(missing)}")
    return run


def flat(run: dict[str, Any]) -> dict[str, Any]:
    """A description without its seed, the method's hyper-parameters beside the other fields."""
    fields = {name: value for name, value in run.items() if name not in ("seed", "options")}
    return {**fields, **(run.get("options") or {})}
