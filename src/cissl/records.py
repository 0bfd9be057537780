"""A run's folder on disk: what it is, how it went, how it ended. Whatever is there is whole: files appear by rename."""

import contextlib
import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

Result = dict[str, Any]


def canonical(description: Mapping[str, Any]) -> str:
    """One text per description, whatever the order of its keys."""
    return json.dumps(description, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def name_of(description: Mapping[str, Any]) -> str:
    """The hash that names a run's folder."""
    return hashlib.sha256(canonical(description).encode()).hexdigest()[:12]


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write beside, flush to the disk, rename: a reader finds all of the file or none of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    write_whole(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


def read_result(folder: Path) -> Result | None:
    """The run's result, None while it has none."""
    path = folder / "result.json"
    try:
        result: Result = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise ValueError(f"{path} is no valid JSON ({error}): delete that file, and the run starts again") from error
    if not isinstance(result, dict) or "status" not in result:
        raise ValueError(f"{path} does not hold a run's result: delete that file, and the run starts again")
    return result


class Curve(NamedTuple):
    """Losses of a stretch of steps: `losses[name]` is (steps,), or (steps, seeds)."""

    steps: npt.NDArray[np.int64]
    losses: dict[str, npt.NDArray[np.float64]]
    learning_rates: npt.NDArray[np.float64]


class CurveFile:
    """steps.csv: a row for each stretch of steps with the mean of each loss in it."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.rows = path, list[list[int | str]]()
        self.names: tuple[str, ...] = ()

    def append(self, curve: Curve, column: int | None = None) -> None:
        """`column` is the seed's place where the curve is of many seeds."""
        losses = {name: values if column is None else values[:, column] for name, values in curve.losses.items()}
        self.names = ("step", "learning_rate", *losses)
        means = (f"{value.mean():.6g}" for value in losses.values())
        self.rows.append([int(curve.steps[-1]), f"{curve.learning_rates[-1]:.6g}", *means])

    def columns(self) -> dict[str, list[float]]:
        return {name: [float(row[place]) for row in self.rows] for place, name in enumerate(self.names)}

    def write(self) -> None:
        if self.path is None:
            return
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.names)
        writer.writerows(self.rows)
        write_whole(self.path, lambda file: file.write(text.getvalue().encode()))


def read_columns(path: Path) -> dict[str, list[float]]:
    """What a `CurveFile` has written."""
    names, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
    return {name: [float(row[place]) for row in rows] for place, name in enumerate(names)}


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no valid JSON ({error}): delete it, or choose another folder") from error


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """One process at a time within: the lock goes with the process, however it ends. BlockingIOError if not to wait."""
    if fcntl is None:
        yield
        return
    with readable_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


class Busy(ValueError):
    """Another process trains there."""


@contextlib.contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """One process trains in a folder."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / ".lock", wait=False))
        except BlockingIOError:
            raise Busy(f"another process is training in {folder}: wait for it, or choose another folder") from None
        yield


class CannotWrite(OSError):
    """An error of writing as a sentence for the user."""


@contextlib.contextmanager
def readable_errors(folder: Path) -> Iterator[None]:
    """A full disk or a folder that cannot be written is a sentence, and what was written before stays."""
    try:
        yield
    except CannotWrite:  # said already, further inside
        raise
    except OSError as error:
        raise CannotWrite(
            f"cannot write to {folder}: {error.strerror or error}. Nothing written before is lost: make room, or give "
            "another folder with --out, and start the same command again"
        ) from error
