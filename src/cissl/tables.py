"""Feature tables of one's own: CSV and Parquet files with a column per feature, and arrays from .npz. No torch."""

import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cissl.image_files import rows_of
from cissl.names import unknown

FloatArray = npt.NDArray[np.float32]
Labels = list[str | None]

ROWS = 10_000  # read at once
PARQUET = frozenset({".parquet", ".pq"})
MISSING = frozenset({"", "na", "nan", "null", "none", "n/a"})  # as spreadsheets and pandas write them, in any case
UNLABELED_NUMBER = -1  # scikit-learn's, where all labels are whole numbers
ARRAY_NAMES = {"x": ("X", "x"), "y": ("y", "labels"), "unlabeled": ("X_unlabeled", "x_unlabeled")}


@dataclass(frozen=True)
class Table:
    """Rows of features, with the label of each where there is a label column."""

    features: tuple[str, ...]
    x: FloatArray
    labels: Labels
    remarks: list[str] = field(default_factory=list)


def read_table(
    source: Path,
    label: str | None,
    features: Sequence[str] | None = None,
    ignored: Sequence[str] = (),
    label_required: bool = True,
) -> Table:
    """A CSV or Parquet file whose columns are features, but for `label` and those ignored.

    `features` are the columns wanted, in their order; others are then left alone. A label that is empty, or −1 where
    all labels are whole numbers, is none.
    """
    blocks = _parquet(source) if source.suffix.lower() in PARQUET else _text(source)
    header = next(blocks)
    wanted, label = _columns(source, header, label, features, ignored, label_required)
    parts, labels, remarks, row = list[FloatArray](), list[Any](), list[str](), 0
    if features is not None and (extra := [name for name in header if name not in (*wanted, *ignored, label)]):
        remarks.append(f"columns of {source.name} that are no features of the model, left alone: {_some(extra)}")
    for block in blocks:
        columns = dict(zip(header, block, strict=True))
        numbers = [_numbers(source, name, columns[name], row) for name in wanted]
        parts.append(np.stack(numbers, 1))
        labels += columns[label] if label is not None else [None] * len(numbers[0])
        row += len(numbers[0])
    if not row:
        raise ValueError(f"{source} has columns and no row: give at least one sample")
    x = np.concatenate(parts)
    _check_missing(source, wanted, x)
    return Table(tuple(wanted), x, as_labels(labels), remarks)


def _columns(
    source: Path,
    header: list[str],
    label: str | None,
    features: Sequence[str] | None,
    ignored: Sequence[str],
    label_required: bool,
) -> tuple[list[str], str | None]:
    """The feature columns, and the label's where there is one."""
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise ValueError(f"{source} has two columns named {_some(twice)}: give each a name of its own")
    for name in ignored if features is None else ():
        if name not in header:
            raise unknown(f"column in --ignore, {source} has none named", name, header)
    if label is not None and label not in header:
        if label_required:
            raise unknown(f"label column, {source} has none named", label, header)
        label = None
    if features is None:
        found = [name for name in header if name not in (label, *ignored)]
        if not found:
            raise ValueError(f"{source} has no column of features beside {_some(header)!r}")
        return found, label
    missing = [name for name in features if name not in header]
    if missing:
        raise ValueError(
            f"{source} lacks {len(missing)} of {len(features)} columns that the model learnt from: {_some(missing)}; "
            f"it has {_some(header, 8)}"
        )
    return list(features), label


def _text(source: Path) -> Iterator[Any]:
    """The header, then blocks of columns."""
    rows = rows_of(_existing(source))
    _, header = next(rows, (0, list[str]()))
    header = [name.strip() for name in header]
    if not header or not all(header):
        what = f"column {header.index('') + 1} has no name" if header else "it is empty"
        raise ValueError(f"{source}: expected a first line with the names of the columns, {what}")
    yield header
    while block := list(islice(rows, ROWS)):
        for line, row in block:
            if len(row) != len(header):
                raise ValueError(f"{source}, line {line}: expected {len(header)} cells as in line 1, got {len(row)}")
        yield [list(column) for column in zip(*(row for _, row in block), strict=True)]


def _parquet(source: Path) -> Iterator[Any]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ValueError("reading Parquet needs pyarrow: pip install 'cissl[tables]', or give a CSV file") from error
    try:
        with parquet.ParquetFile(_existing(source)) as file:
            header = file.schema_arrow.names
            yield header
            for batch in file.iter_batches(ROWS):
                yield [column.to_pylist() for column in batch.columns]
    except (ArrowException, OSError) as error:
        raise ValueError(f"{source} cannot be read as Parquet: {str(error).splitlines()[0]}") from error


def _existing(source: Path) -> Path:
    if not source.is_file():
        what = "is a folder" if source.is_dir() else "is not there"
        raise ValueError(f"{source} {what}: expected a .csv or .parquet file with a column for each feature")
    return source


def _numbers(source: Path, name: str, cells: Sequence[Any], row: int) -> FloatArray:
    """A column's cells as numbers, NaN where one is missing."""
    with np.errstate(over="ignore"):  # too large a number is infinite, and reported as that
        try:
            return np.array(cells, dtype=np.float32)  # mostly all of them are numbers, or text that reads as one
        except (ValueError, TypeError, OverflowError):
            return np.array([_number(source, name, cell, row + i) for i, cell in enumerate(cells, 1)], np.float32)


def _number(source: Path, name: str, cell: Any, row: int) -> float:
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING):
        return math.nan
    try:
        return float(cell)
    except (ValueError, TypeError, OverflowError):
        shown = repr(cell) if len(repr(cell)) <= 40 else repr(cell)[:37] + "…"
        raise ValueError(
            f"{source}: column {name!r} holds {shown} in row {row}, and features have to be numbers: encode it as "
            f"numbers, or leave it out with --ignore {name!r}"
        ) from None


def _check_missing(source: Path, names: Sequence[str], x: FloatArray) -> None:
    """Filling in is for whoever knows what the numbers mean."""
    bad = ~np.isfinite(x)
    if not bad.any():
        return
    where = [f"{names[i]} ({count} rows)" for i, count in enumerate(bad.sum(0)) if count]
    raise ValueError(
        f"{source}: values are missing or infinite in {_some(where)}; the first is in row "
        f"{int(bad.any(1).argmax()) + 1}: fill them in, remove those rows, or leave the columns out with --ignore"
    )


def as_labels(cells: Sequence[Any]) -> Labels:
    """Labels as text, None where there is none: 1.0 and 1 are one class."""
    texts = [None if _no_label(cell) else _label(cell) for cell in cells]
    numbered = all(text is None or text.removeprefix("-").isdecimal() for text in texts)
    return [None if numbered and text == str(UNLABELED_NUMBER) else text for text in texts]


def _no_label(cell: Any) -> bool:
    if cell is None or (isinstance(cell, float | np.floating) and math.isnan(cell)):
        return True
    return isinstance(cell, str) and (cell.strip() == "" or cell.strip().lower() == "nan")


def _label(cell: Any) -> str:
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", "replace")
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        cell = int(cell)
    return str(cell).strip()


# ---- Arrays


@dataclass(frozen=True)
class Arrays:
    """What a .npz file holds: X, and where they are there y and X_unlabeled."""

    x: npt.NDArray[Any]
    labels: Labels | None
    unlabeled: npt.NDArray[Any] | None


def read_arrays(source: Path) -> Arrays:
    """X (n, d) or images X (n, h, w[, c]), y (n,), X_unlabeled of the same kind. Nothing is unpickled."""
    if not source.is_file():
        raise ValueError(f"{source} is not there: expected a .npz file with X, y and perhaps X_unlabeled")
    try:
        found, names = _unpacked(source)
    except (OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise ValueError(f"{source} cannot be read as .npz, it is torn or another kind of file: {error}") from None
    except ValueError as error:
        objects = "it holds Python objects, which are not read; save labels as text or numbers, not as objects"
        raise ValueError(f"{source}: {objects if 'allow_pickle' in str(error) else error}") from None
    x, y, unlabeled = found["x"], found["y"], found["unlabeled"]
    if x is None:
        raise ValueError(f"{source} has no array X: it has {_some(names) or 'none'}; expected X, y, X_unlabeled")
    for name, array in (("X", x), ("X_unlabeled", unlabeled)):
        if array is not None:
            _check_samples(source, name, array)
    if unlabeled is not None and unlabeled.shape[1:] != x.shape[1:]:
        raise ValueError(f"{source}: X has samples of shape {x.shape[1:]} and X_unlabeled of {unlabeled.shape[1:]}")
    if y is not None and y.shape != (len(x),):
        raise ValueError(f"{source}: expected {len(x)} labels y for {len(x)} samples, got shape {y.shape}")
    return Arrays(x, None if y is None else as_labels(y.tolist()), unlabeled)


def _unpacked(source: Path) -> tuple[dict[str, npt.NDArray[Any] | None], list[str]]:
    """The arrays that are looked for, None where they are not there, and the names of all."""
    with source.open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise ValueError("it holds a single array; save X and y with numpy.savez")
        with stored:
            found = {}
            for what, names in ARRAY_NAMES.items():
                found[what] = next((stored[name] for name in names if name in stored.files), None)
            return found, stored.files


def _check_samples(source: Path, name: str, x: npt.NDArray[Any]) -> None:
    if x.dtype.kind not in "uifb":
        raise ValueError(f"{source}: {name} holds {x.dtype}, and samples have to be numbers")
    if x.ndim not in (2, 3, 4) or not x.size:
        raise ValueError(f"{source}: expected {name} of shape (n, d) or (n, height, width[, channels]), got {x.shape}")


def _some(names: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
