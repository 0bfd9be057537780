"""The numbers of the paper's tables, to stand beside ours: errors in %, mean and deviation over five seeds."""

from __future__ import annotations

import csv
import functools
from importlib import resources

Key = tuple[str, str, str, str, str, str, str, str]


def lookup(
    table: str,
    dataset: str,
    algorithm: str,
    reweight: str | None = None,
    unlabeled: str | None = None,
    imbalance: float | None = None,
    labels: int | None = None,
    classes: str | None = None,
) -> tuple[float, float | None] | None:
    """(mean, std) as printed in the paper, None where it has no such cell.

    The detection table gives a mAP in place of an error, most of it without a deviation.
    """
    return _published().get(
        (
            table,
            dataset,
            algorithm,
            reweight or "",
            unlabeled or "",
            _number(imbalance),
            _number(labels),
            classes or "",
        )
    )


@functools.cache
def _published() -> dict[Key, tuple[float, float | None]]:
    text = resources.files("cissl.report").joinpath("paper.csv").read_text(encoding="utf-8")
    cells: dict[Key, tuple[float, float | None]] = {}
    for row in csv.DictReader(text.splitlines()):
        mean, std = row["error_mean"] or row["map_mean"], row["error_std"] or row["map_std"]
        key = (
            row["table"],
            row["dataset"],
            row["algorithm"],
            row["reweight"],
            row["unlabeled"],
            _number(row["imbalance"]),
            _number(row["labels"]),
            row["classes"],
        )
        cells[key] = float(mean), float(std) if std else None
    return cells


def _number(value: float | str | None) -> str:
    """One spelling for 5, 5.0 and "5"; empty where the table has nothing."""
    return "" if value is None or value == "" else f"{float(value):g}"
