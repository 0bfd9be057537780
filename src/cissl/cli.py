"""The command line. Nothing heavy is imported before a command needs it: `cissl --help` answers at once."""

import re
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import cissl
from cissl import cli_data, cli_train

if TYPE_CHECKING:
    from cissl.run import Run

app = typer.Typer(
    help="Class-imbalanced semi-supervised learning: the paper's studies, and training on data of your own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(cli_data.app, name="data")

STUDIES = {
    "toy": "Table 1 and Figure 1: two-moons and four-spins, 5 seeds, well under a minute on two cores",
    "fashion": "Fashion-MNIST, 250 labels, ρ = 100, uniform unlabeled data, 5 seeds, about an hour on two cores",
}
INTERRUPTED = 130  # as shells count Ctrl-C

StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="The study's name, see `cissl list`.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="The study's folder.", show_default="runs/STUDY")
]  # fmt: skip


def main() -> None:
    """A user's mistake is one sentence and exit status 2, never a traceback; a warning is one sentence too."""
    warnings.formatwarning = lambda message, category, *_: f"warning: {message}\n"
    try:
        app(prog_name="cissl")
    except (ValueError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)


def _version(asked: bool) -> bool:
    if asked:
        typer.echo(f"cissl {cissl.__version__}")
        raise typer.Exit
    return asked


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Class-imbalanced semi-supervised learning."""


@app.command("list")
def list_() -> None:
    """What there is to choose from: studies, methods, networks and data sets."""
    from cissl import datasets, methods, networks, protocol

    typer.echo("Studies (cissl run STUDY)")
    for name, what in STUDIES.items():
        typer.echo(f"  {name:<14}{what}")
    typer.echo("\nMethods (a base and its modifiers, such as vat+em+sntg)")
    for name, base in methods.BASES.items():
        typer.echo(f"  {name:<14}{_first_sentence(base.__doc__)}")
    for name, modifier in methods.MODIFIERS.items():
        typer.echo(f"  +{name:<13}{_first_sentence(modifier.__doc__)}")
    typer.echo(f"  the paper's   {', '.join(methods.PAPER)}")
    typer.echo("\nRe-weighting of the labeled loss")
    typer.echo("  ce none, in inverse frequency, focal, cb class-balanced")
    typer.echo(f"\nUnlabeled data\n  {', '.join(protocol.UNLABELED_TYPES)}")
    typer.echo(f"\nNetworks\n  {', '.join(networks.NAMES)}, or your own as module:callable")
    typer.echo(f"\nData sets (cissl data show NAME)\n  {', '.join(datasets.DATASETS)}")


def _first_sentence(text: str | None) -> str:
    """Of a docstring, without the place in the literature and the name of a modifier, which is printed before it."""
    text = re.sub(r" \([^()]*\d{4}\)", "", " ".join((text or "").split()))
    return re.sub(r"^\+\w+(: |, )", "", text.split(". ")[0].rstrip("."))


@app.command()
def run(
    study: StudyName,
    seeds: Annotated[int, typer.Option(help="How many seeds of each setting, counted from 0.", min=1)] = 5,
    methods: Annotated[
        str | None,
        typer.Option(help='Separated by commas: "pi,vat+em"; "all": the paper\'s eight.', show_default="the study's"),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Training steps; every schedule scales.", min=1, show_default="the paper's")
    ] = None,
    out: Out = None,
    jobs: Annotated[int | None, typer.Option(help="Processes at once.", min=1, show_default="one per core")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data sets.", show_default="CISSL_DATA")] = None,
    accelerator: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to train images.")] = "auto",
) -> None:
    """Run a study: what is done already is not done again, so the same command goes on where it was stopped."""
    folder = _folder(study, out)
    started = time.monotonic()
    from cissl import recipes
    from cissl.execution import Machine
    from cissl.records import readable_errors
    from cissl.study import cores, execute_study, pending

    chosen = {} if methods is None else {"methods": [name.strip() for name in methods.split(",")]}
    runs = recipes.STUDIES[study](seeds=seeds, steps=steps, **chosen)
    waiting = pending(runs, folder)
    failures = []
    if waiting:
        with _stoppable(runs, folder), _progress(waiting, len(runs)) as progress:
            failures = execute_study(runs, folder, jobs or cores(), progress, Machine(data_dir, accelerator))
        failed = sum(len(failure.runs) for failure in failures)
        typer.echo(f"{len(waiting) - failed} runs done in {time.monotonic() - started:.0f} s.")
    else:
        typer.echo(f"All {len(runs)} runs are done already.")
    for failure in failures:
        typer.echo(f"failed: {_which(failure.runs)}: {failure.reason}", err=True)
    with _stoppable(runs, folder):
        if study == "toy":
            from cissl.recipes.toy import analyse

            with readable_errors(folder):
                analyse(runs, folder)
        _report(study, folder, [run.name for run in runs])
    if failures:
        raise typer.Exit(1)


@app.command()
def report(study: StudyName, out: Out = None) -> None:
    """The tables and figures of a study, as far as it is done."""
    folder = _folder(study, out)
    if not folder.is_dir():
        raise ValueError(f"there is no {folder}: run it with `cissl run {study}`, or say where it is with --out")
    _report(study, folder, None)


app.command()(cli_train.train)


def _folder(study: str, out: Path | None) -> Path:
    from cissl.names import unknown

    if study not in STUDIES:
        raise unknown("study", study, STUDIES)
    folder = out if out is not None else Path("runs") / study
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, and a study needs a folder: give another with --out")
    return folder


def _report(study: str, folder: Path, only: list[str] | None) -> None:
    from rich.console import Console

    from cissl.records import readable_errors
    from cissl.report import write_report

    with readable_errors(folder):
        written = write_report(folder, Console(), only, study)
    typer.echo("Written:")
    for path in written:
        typer.echo(f"  {path}")


def _which(runs: list["Run"]) -> str:
    seeds = ", ".join(str(run.seed) for run in runs)
    return f"{runs[0].dataset}, {runs[0].method}, seed{'s' if len(runs) > 1 else ''} {seeds}"


@contextmanager
def _stoppable(runs: list["Run"], folder: Path) -> Iterator[None]:
    """Ctrl-C: say what is done and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        from cissl.study import pending

        done = len(runs) - len(pending(runs, folder))
        typer.echo(f"\nStopped. {done} of {len(runs)} runs are done; the same command goes on from there.", err=True)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _progress(waiting: list["Run"], of: int) -> Iterator[Any]:
    """A bar on a terminal; else a line for every tenth."""
    steps, done = sum(run.steps for run in waiting), of - len(waiting)
    if not sys.stderr.isatty():
        yield _lines(steps, done, of)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.fields[done]} of {task.fields[of]} runs"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=steps, done=done, of=of)

        def tell(taken: int, finished: int) -> None:
            nonlocal done
            done += finished
            bar.update(task, advance=taken, done=done)

        yield tell


def _lines(steps: int, done: int, of: int) -> Any:
    taken_so_far, started = 0, time.monotonic()

    def tell(taken: int, finished: int) -> None:
        nonlocal taken_so_far, done
        before, taken_so_far, done = taken_so_far, taken_so_far + taken, done + finished
        if steps > taken_so_far and 10 * taken_so_far // steps > 10 * before // steps:
            left = (time.monotonic() - started) * (steps - taken_so_far) / taken_so_far
            typer.echo(f"{done} of {of} runs done, {100 * taken_so_far // steps} %, {left:.0f} s left", err=True)

    return tell


if __name__ == "__main__":
    main()
