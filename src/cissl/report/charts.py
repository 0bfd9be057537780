"""What the report's charts show, as plain data: curves, recall against frequency, confusion, boundaries by step."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import matplotlib
import numpy as np
from jaxtyping import Float
from PIL import Image

from cissl.report.figures import CLASS_COLOURS, CONFIDENCE_COLOURS
from cissl.report.layout import Comparison
from cissl.report.results import Group, Result

CURVE_POINTS = 100  # of a curve: no screen shows more, and thousands of runs must fit into the page
FEWER_POINTS = 40  # of each of very many
MANY_RUNS = 400
BOUNDARIES = 60  # runs whose boundary is shown by step, the lowest seeds first
UNLABELED_SHOWN = 600  # points in a boundary's picture
DIGITS = 4

Data = dict[str, Any]


def data(comparison: Comparison) -> Data:
    """Everything that the page draws, ready for JSON. Groups are named by their place."""
    groups = list({id(group): group for group in comparison.groups.values()}.values())
    places = {id(group): place for place, group in enumerate(groups)}
    n_runs = sum(len(group.results) for group in groups)
    points = CURVE_POINTS if n_runs <= MANY_RUNS else FEWER_POINTS
    columns = list(comparison.columns)
    return {
        "methods": [column.name for column in columns],
        "settings": [
            {
                "name": setting.name,
                "groups": [
                    [columns.index(column), places[id(comparison.groups[setting, column])]]
                    for column in columns
                    if (setting, column) in comparison.groups
                ],
            }
            for setting in comparison.settings
        ],
        "groups": [_group(group, points) for group in groups],
        "boundaries": _boundaries(comparison),
        "classColours": list(CLASS_COLOURS),
    }


def _group(group: Group, points: int) -> Data:
    return {"runs": [curves(result, points) for result in group.results if result.record], **ranked(group)}


def ranked(group: Group) -> Data:
    """What is known of each class, from the one with most labels to the rarest; each seed has ranks of its own."""
    found: Data = {}
    done = [result for result in group.results if result.status == "done"]
    known = [(result, ranks) for result in done if (ranks := ranking(result)) is not None]
    if known:
        found["labeled"] = rounded(np.mean([_counts(r, "labeled_counts")[ranks] for r, ranks in known], axis=0))
        seen = [(_counts(r, "unlabeled_counts"), ranks) for r, ranks in known]
        unlabeled = [counts[ranks] for counts, ranks in seen if len(counts) == len(ranks) and counts.any()]
        if unlabeled:
            found["unlabeled"] = rounded(np.mean(unlabeled, axis=0))
        for network in ("student", "teacher"):
            found |= _by_rank(network, known)
    return found


def ranking(result: Result) -> np.ndarray | None:
    """Classes from the most frequent labeled one to the rarest; None where the counts are not told."""
    counts = _counts(result, "labeled_counts")
    return np.argsort(-counts, kind="stable") if len(counts) else None


def _counts(result: Result, name: str) -> np.ndarray:
    return np.asarray(result.record.get(name) or [], dtype=np.int64)


def _by_rank(network: str, ranked: Sequence[tuple[Result, np.ndarray]]) -> Data:
    """Recall (of detectors the average precision) and confusion by the rank of the class: which class is rare differs
    from seed to seed."""
    found: Data = {}
    measured = [(getattr(result, network) or {}, ranks) for result, ranks in ranked]
    kind = "average_precision" if any("map" in metrics for metrics, _ in measured) else "recall"
    rows = [_floats(metrics[kind])[ranks] for metrics, ranks in measured if _fits(metrics.get(kind), ranks)]
    if rows:
        found[f"{network}Recall"] = [rounded(row) for row in rows]
        found["of"] = kind.replace("_", " ")
    tables = [np.asarray(m["confusion"])[np.ix_(r, r)] for m, r in measured if _fits(m.get("confusion"), r)]
    if tables:
        found[f"{network}Confusion"] = np.sum(tables, axis=0).tolist()
    return found


def _fits(values: Any, ranks: np.ndarray) -> bool:
    return isinstance(values, list) and len(values) == len(ranks)


def _floats(values: Iterable[float | None]) -> Float[np.ndarray, " n"]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


# ---- Learning curves


def curves(result: Result, points: int = CURVE_POINTS) -> Data:
    """One run's losses, each point the mean over its stretch of steps, and its validations, as they are."""
    found: Data = {"seed": result.seed, "status": result.status}
    steps, losses = _losses(result.folder / "steps.csv")
    if len(steps):
        found["steps"], found["losses"] = thinned(steps, losses, points)
    return found | validations(result)


def validations(result: Result) -> Data:
    """A run's validations of the metric that selects: errors and mAP in %."""
    seen = [one for one in result.record.get("validation") or [] if "step" in one]
    first = next((key for key in (seen or [{}])[0] if key.startswith("student_")), None)
    if first is None:
        return {}
    metric = first.removeprefix("student_")
    scale = 100 if metric in ("error", "balanced_error", "map") else 1
    found: Data = {"metric": metric, "validated": [one["step"] for one in seen]}
    for network in ("student", "teacher"):
        if (key := f"{network}_{metric}") in seen[0]:
            found[network] = rounded([scale * one.get(key, math.nan) for one in seen])
    return found


def _losses(path: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The columns of a run's steps.csv; nothing where there is none, or none that can be read."""
    try:
        with path.open(encoding="utf-8") as file:
            header = file.readline().strip().split(",")
            rows = file.readlines()
        table = np.loadtxt(rows, delimiter=",", ndmin=2) if rows else np.zeros((0, 0))
    except (OSError, ValueError):
        return np.zeros(0), {}
    if "step" not in header or table.shape[1:] != (len(header),):
        return np.zeros(0), {}
    columns = dict(zip(header, table.T, strict=True))
    return columns.pop("step"), {name: values for name, values in columns.items() if name != "learning_rate"}


def thinned(
    steps: np.ndarray, losses: dict[str, np.ndarray], points: int
) -> tuple[list[int], dict[str, list[float | None]]]:
    """At most so many points, of stretches of equal length; a point stands at the end of its stretch."""
    edges = np.unique(np.linspace(0, len(steps), min(points, len(steps)) + 1).round().astype(int))
    means = {name: np.add.reduceat(values, edges[:-1]) / np.diff(edges) for name, values in losses.items()}
    return [int(step) for step in steps[edges[1:] - 1]], {name: rounded(values) for name, values in means.items()}


def rounded(values: Iterable[float]) -> list[float | None]:
    """To four digits, as short as JSON allows; None for what is no number."""
    return [_rounded(float(value)) for value in values]


def _rounded(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


# ---- Decision boundaries


def _boundaries(comparison: Comparison) -> list[Data]:
    """A strip of pictures per run, the lowest seeds first when there are too many."""
    runs = [
        (result.seed, place, setting.name, column.name, result)
        for place, (setting, column) in enumerate(comparison.groups)
        for result in comparison.groups[setting, column].results
        if (result.folder / "boundary-steps.npz").is_file()
    ]
    found = []
    for seed, _, setting_name, method, result in sorted(runs, key=lambda run: run[:2])[:BOUNDARIES]:
        arrays = _arrays(result.folder / "boundary-steps.npz")
        if arrays is not None:
            found.append({"seed": seed, "setting": setting_name, "method": method, **strip(arrays)})
    return found


def _arrays(path: Path) -> dict[str, np.ndarray] | None:
    wanted = ("x", "y", "steps", "confidence", "labeled_points", "labeled_classes", "unlabeled_points")
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            return {name: arrays[name] for name in wanted}
    except (OSError, KeyError, ValueError, EOFError, BadZipFile):
        return None


def strip(arrays: dict[str, np.ndarray]) -> Data:
    """The planes of all steps below each other as one PNG of few colours, and the points in fractions of the plane."""
    planes = arrays["confidence"][:, ::-1]  # up is up
    steps, height, width = planes.shape
    # As in Figure 1: dark is a confidence of a half or less.
    shades = np.clip((planes.astype(np.float32) / 255 - 0.5) * 2 * 63, 0, 63).round().astype(np.uint8)
    colours = (matplotlib.colormaps[CONFIDENCE_COLOURS](np.linspace(0, 1, 64))[:, :3] * 255).astype(np.uint8)
    image = Image.frombytes("P", (width, steps * height), shades.tobytes())
    image.putpalette(colours.tobytes())
    png = io.BytesIO()
    image.save(png, "PNG", optimize=True)
    x, y = arrays["x"], arrays["y"]

    def placed(points: np.ndarray) -> list[list[float]]:
        across, up = (points[:, 0] - x[0]) / (x[-1] - x[0]), (points[:, 1] - y[0]) / (y[-1] - y[0])
        return [[round(float(a), 3), round(float(b), 3)] for a, b in zip(across, 1 - up, strict=True)]

    unlabeled = arrays["unlabeled_points"]
    return {
        "steps": arrays["steps"].tolist(),
        "size": [width, height],
        "png": base64.b64encode(png.getvalue()).decode(),
        "labeled": placed(arrays["labeled_points"]),
        "classes": arrays["labeled_classes"].astype(int).tolist(),
        "unlabeled": placed(unlabeled[:: max(1, len(unlabeled) // UNLABELED_SHOWN)]),
    }
