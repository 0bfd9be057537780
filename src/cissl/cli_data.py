"""`cissl data list | fetch NAME | show NAME`: which data sets there are, getting them, and what is in them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from cissl.names import is_own

app = typer.Typer(no_args_is_help=True, help="List, fetch and look at data sets.")

Name = Annotated[str, typer.Argument(help="The data set's name, see `cissl data list`.", show_default=False)]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder of the data sets; else CISSL_DATA, else the platform's cache.", show_default=False),
]


_VOC = {
    "voc2007": "photographs of twenty kinds of objects: labeled, and for testing",
    "voc2012": "more of them, as unlabeled ones",
}


@contextmanager
def _complaints() -> Iterator[None]:
    """A user's mistake, a missing file or network: the message alone, and exit status 2."""
    try:
        yield
    except ValueError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


@app.command("list")
def list_(data_dir: DataDir = None) -> None:
    """Which data sets there are, and which are here."""
    from cissl import datasets
    from cissl.detection import voc

    rows = [("name", "samples", "train", "test", "classes", "status", "what")]
    for name, known in datasets.DATASETS.items():
        found = datasets.files(name, data_dir).values()
        here = sum(path is not None for path in found)
        status = "built in" if not found else "here" if here == len(found) else f"{here} of {len(found)} files here"
        shape = " x ".join(str(size) for size in known.shape)
        numbers = (f"{known.train:,}", f"{known.test:,}", str(len(known.class_names)))
        rows.append((name, shape, *numbers, status, known.title))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    typer.echo("\nfor cissl detect")
    for name, title in _VOC.items():
        archives = voc.is_here(name, data_dir)
        status = "here" if all(archives) else f"{sum(archives)} of {len(archives)} archives here"
        typer.echo(f"{name.ljust(widths[0])}  {status.ljust(widths[5])}  {title}")
    typer.echo(f"\nfolder: {datasets.data_folder(data_dir)}")
    _list_weights(data_dir)


@app.command()
def fetch(name: Name, data_dir: DataDir = None) -> None:
    """Download what is missing of a data set, or of the weights vgg16-ssd, from its official place, and check it."""
    if _fetched_weights(name, data_dir):
        return
    from cissl import datasets
    from cissl.detection import voc

    with _complaints():
        if name in voc.ARCHIVES:
            with _bars() as bar:
                fetched = voc.fetch(name, data_dir, bar)
            typer.echo(f"{name}: fetched {', '.join(fetched)}" if fetched else f"{name}: everything was there already")
            typer.echo(f"  unpacked in {datasets.data_folder(data_dir) / 'VOCdevkit'}")
            return
        if not datasets.entry(name).downloads:
            typer.echo(f"{name} is built in: nothing to fetch")
            return
        with _bars() as bar:
            fetched = datasets.fetch(name, data_dir, bar)
        typer.echo(f"{name}: fetched {', '.join(fetched)}" if fetched else f"{name}: everything was there already")
        for file, path in datasets.files(name, data_dir).items():
            typer.echo(f"  {file}: {path}, checked")


@app.command()
def show(name: Name, data_dir: DataDir = None) -> None:
    """Load a data set, which checks its files, and print what is in it."""
    import numpy as np

    from cissl import datasets

    with _complaints():
        data = datasets.load(name, data_dir)
        known = None if is_own(name) else datasets.entry(name)
        typer.echo(f"{name}: {known.title if known else 'your own'}")
        for download in known.downloads if known else ():
            typer.echo(f"  {download.name}: {datasets.files(name, data_dir)[download.name]} (from {download.url})")
        for part, x in (("training", data.train_x), ("test", data.test_x)):
            shape = " x ".join(map(str, x.shape[1:]))
            typer.echo(
                f"  {len(x):,} {part} samples of {shape}, {x.dtype}, {x.min():.4g} to {x.max():.4g}, "
                f"mean {x.mean(dtype=np.float64):.4g}, deviation {x.std(dtype=np.float64):.4g}"
            )
        width = max(map(len, ("class", *data.class_names)))
        typer.echo(f"\n  {'class'.ljust(width)}  training    test")
        pair = (np.bincount(y, minlength=data.n_classes) for y in (data.train_y, data.test_y))
        for label, train, test in zip(data.class_names, *pair, strict=True):
            typer.echo(f"  {label.ljust(width)}  {train:8,}  {test:6,}")


def _list_weights(data_dir: Path | None) -> None:
    from cissl.detection import weights

    for name, known in weights.WEIGHTS.items():
        here = "here" if weights.place(name, data_dir).is_file() else "not here"
        typer.echo(f"weights for cissl detect: {name}, {known.title}; {here}")


def _fetched_weights(name: str, data_dir: Path | None) -> bool:
    """Fetch the weights of that name, if there are any."""
    from cissl.detection import weights

    if name not in weights.WEIGHTS:
        return False
    with _complaints():
        with _bars() as bar:
            fetched = weights.fetch(name, data_dir, bar)
        typer.echo(f"{name}: fetched {', '.join(fetched)}" if fetched else f"{name}: everything was there already")
        typer.echo(f"  {weights.place(name, data_dir)}, checked")
    return True


@contextmanager
def _bars() -> Iterator[Callable[[str], Any]]:
    """Progress of downloads on the terminal, in the form that the fetching asks for."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:

        class Bar:
            """One file."""

            def __init__(self, file: str) -> None:
                self.task = progress.add_task(file, total=None)

            @property
            def total(self) -> float | None:
                return progress.tasks[self.task].total

            @total.setter
            def total(self, size: float) -> None:
                progress.update(self.task, total=size)

            def update(self, size: int) -> None:
                progress.advance(self.task, size)

            def reset(self) -> None:
                progress.update(self.task, completed=0)

            def close(self) -> None:
                progress.stop_task(self.task)

        yield Bar
