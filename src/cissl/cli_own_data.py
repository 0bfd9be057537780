"""`cissl train --images`, `--table` and `--arrays`: a model from data of one's own, in a folder that one can keep."""

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from cissl.estimator import CISSLClassifier
    from cissl.execution import Machine, Status
    from cissl.own_data import Found
    from cissl.run import OwnData

INTERRUPTED = 130  # as shells count Ctrl-C
TRAINING = "training"  # the folder of the runs in that of the model
DECODED = "decoded"  # the folder of decoded images in that of the data sets
CLASSES_SHOWN = 30
EVERY = 10_000  # images between lines where there is no terminal


@dataclass(frozen=True)
class Asked:
    """What the command line says of the data."""

    images: Path | None
    table: Path | None
    arrays: Path | None
    unlabeled: Path | None
    label: str | None
    ignore: Sequence[str]
    size: int | None
    color: Any
    resize: Any
    max_broken: int | None

    def __post_init__(self) -> None:
        """One kind of data, and only what belongs to it."""
        given = [name for name in ("images", "table", "arrays") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"--{given[0]} and --{given[1]} are two kinds of data: give one of them")
        kind = given[0]
        belonging = {
            "images": {"size": self.size, "color": self.color, "resize": self.resize, "max-broken": self.max_broken},
            "table": {"label": self.label, "ignore": self.ignore or None},
            "arrays": {},
        }
        for other, options in belonging.items():
            wrong = [name for name, value in options.items() if value is not None and other != kind]
            if wrong:
                raise ValueError(f"--{wrong[0]} is for --{other}: leave it out with --{kind}")
        if self.arrays is not None and self.unlabeled is not None:
            raise ValueError("--unlabeled is for --images and --table: put X_unlabeled into the .npz file")


def train(asked: Asked, parameters: Mapping[str, Any], out: Path, machine: "Machine") -> None:
    """Read, say what was found, train, save; what is done already is not done again."""
    from cissl import model_folder, own_data

    if machine.devices > 1:
        raise ValueError("own data is trained on one device: leave --devices out")
    if out.is_file():
        raise ValueError(f"{out} is a file, and a model needs a folder: give another with --out")
    with _stoppable():
        found = _found(asked, machine.data_dir)
        _tell_found(asked, found)
        for text in [*found.remarks, *own_data.warnings_of(found)]:
            typer.echo(f"warning: {text}", err=True)
        made_from = _made_from(found, parameters)
        if (out / model_folder.MODEL).exists():
            _check_same(out, made_from)
            typer.echo("This model is trained already.")
        else:
            classifier = _fitted(found, parameters, out, machine)
            model_folder.save(classifier, out, found.kind, made_from)
    _tell_model(out)


def _found(asked: Asked, data_dir: Path | None) -> "Found":
    from cissl import datasets, own_data
    from cissl.image_arrays import MAX_BROKEN

    if asked.table is not None:
        return own_data.from_table(asked.table, asked.label or "label", asked.unlabeled, asked.ignore)
    if asked.arrays is not None:
        return own_data.from_arrays(asked.arrays)
    assert asked.images is not None
    with _decoding() as tell:
        return own_data.from_images(
            asked.images, asked.unlabeled, datasets.data_folder(data_dir) / DECODED, asked.size, asked.color or "auto",
            asked.resize or "letterbox", MAX_BROKEN if asked.max_broken is None else asked.max_broken, tell,
        )  # fmt: skip


def _tell_found(asked: Asked, found: "Found") -> None:
    counts = found.class_counts
    source = asked.images or asked.table or asked.arrays
    what = "samples"
    if asked.images is not None:
        kind, what = found.kind, "images"
        color = "grey" if kind["channels"] == 1 else "RGB"
        typer.echo(f"{source}: images as {kind['size']} x {kind['size']} {color} ({kind['resize']})")
    else:
        typer.echo(f"{source}: samples of {' x '.join(map(str, found.x.shape[1:]))} numbers")
    total = sum(counts.values())
    typer.echo(f"{total:,} labeled {what} of {len(counts)} classes, {found.without_label:,} without a label")
    width = max((len(name) for name in counts), default=0)
    for name, count in list(counts.items())[:CLASSES_SHOWN]:
        typer.echo(f"  {name.ljust(width)}{count:>9,}")
    if len(counts) > CLASSES_SHOWN:
        typer.echo(f"  and {len(counts) - CLASSES_SHOWN} more")


def _made_from(found: "Found", parameters: Mapping[str, Any]) -> str:
    from cissl.records import canonical

    described = {"data": found.key, "kind": dict(found.kind), "parameters": dict(parameters)}
    return hashlib.sha256(canonical(described).encode()).hexdigest()[:24]


def _check_same(out: Path, made_from: str) -> None:
    from cissl import model_folder

    if model_folder.read(out)["made_from"] != made_from:
        raise ValueError(
            f"{out} holds a model of other data or settings: choose another folder with --out, or delete it"
        )


def _fitted(found: "Found", parameters: Mapping[str, Any], out: Path, machine: "Machine") -> "CISSLClassifier":
    import numpy as np

    from cissl import records
    from cissl.cli_train import progress
    from cissl.estimator import CISSLClassifier

    classifier = CISSLClassifier(**parameters)
    labels = np.array([*found.labels, None], dtype=object)[:-1]
    labeled = sum(found.class_counts.values())
    with records.readable_errors(out), ExitStack() as stack:
        watches: list[Callable[["Status"], object]] = []

        def announce(runs: Sequence["OwnData"]) -> None:
            _tell_training(classifier, runs, labeled)
            watches.append(stack.enter_context(progress(runs[0].steps)))

        def watch(status: "Status") -> None:
            watches[0](status)

        folder = out / TRAINING
        classifier._fit(
            found.x, labels, found.unlabeled, folder=folder, watch=watch, machine=machine, announce=announce
        )
    if found.kind["kind"] == "table":  # so that a frame is matched by its columns' names
        classifier.feature_names_in_ = np.array(found.kind["features"], dtype=object)
    return classifier


def _tell_training(classifier: "CISSLClassifier", runs: Sequence["OwnData"], labeled: int) -> None:
    from cissl.own_data import few_to_choose_by

    run, held_out = runs[0], labeled - int(classifier.labeled_counts_.sum())
    batch = f"{run.labeled_batch} labeled" + (f" + {run.unlabeled_batch} unlabeled" if run.unlabeled_batch else "")
    models = f" {len(runs)} models," if len(runs) > 1 else ""
    typer.echo(
        f"Training {run.method} with {run.network},{models} {run.steps:,} steps of {batch} samples, learning rate "
        f"{run.learning_rate:g}"
    )
    if held_out:
        typer.echo(f"{held_out:,} of {labeled:,} labeled samples are held out, to choose the best step by")
    else:
        typer.echo("No labeled sample is held out, all of them are learnt from: the last step counts")
    for text in few_to_choose_by(held_out):
        typer.echo(f"warning: {text}", err=True)


def _tell_model(out: Path) -> None:
    """What is known of the model, and what to do with it."""
    from cissl import model_folder
    from cissl.model_page import percent

    described = model_folder.read(out)
    if (validation := described["validation"]) is not None:
        names = [str(name) for name in described["classes"]["names"]]
        width = max(len("class"), *map(len, names))
        typer.echo(
            f"On the samples held out: error {percent(validation['error'])}, balanced "
            f"{percent(validation['balanced_error'])} (a little too good: the best step was chosen by them)"
        )
        typer.echo(f"  {'class'.ljust(width)}{'recall':>10}{'precision':>11}")
        for name, recall, precision in zip(names, validation["recall"], validation["precision"], strict=True):
            typer.echo(f"  {name.ljust(width)}{percent(recall):>10}{percent(precision):>11}")
    typer.echo(f"Written: {out}")
    example = {"images": "IMAGES/", "table": "MORE.csv", "arrays": "MORE.npz"}[described["reading"]["kind"]]
    typer.echo(f"Next: cissl predict {out} {example}   or, with labels: cissl evaluate {out} {example}")


@contextmanager
def _stoppable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("\nStopped; the same command goes on from where it was.", err=True)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _decoding() -> Iterator[Callable[[int, int], object]]:
    """How many files are decoded: a bar on a terminal, else a line now and then."""
    if not sys.stderr.isatty():

        def line(done: int, total: int) -> None:
            if done % EVERY < 256 <= done and done < total:
                typer.echo(f"{done:,} of {total:,} images decoded", err=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("decoding images"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
