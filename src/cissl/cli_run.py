"""`cissl run` and `cissl status`: studies, from this machine or a cluster."""

import inspect
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from cissl.execution import Machine
    from cissl.run import Description
    from cissl.study import Workers

INTERRUPTED = 130  # as shells count Ctrl-C
WATCH_EVERY = 2.0  # seconds

StudyName = Annotated[
    str, typer.Argument(metavar="STUDY", help="A study's name, see `cissl list`, or a .toml or .py file of your own.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The study's folder.", show_default="runs/STUDY")]


def run(
    study: StudyName,
    dataset: Annotated[str | None, typer.Option(help="Of another data set.", show_default="the study's")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="How many seeds of each setting, counted from 0.", min=1, show_default="the study's"),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help='Separated by commas: "pi,vat+em"; "all": the paper\'s eight.', show_default="the study's"),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Training steps; every schedule scales.", min=1, show_default="the paper's")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Runs with that value only, as key=value; repeatable.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another value for a field of every run, as key=value; repeatable."),
    ] = None,
    out: Out = None,
    jobs: Annotated[int | None, typer.Option(help="Processes at once.", min=1, show_default="one per core")] = None,
    on: Annotated[Literal["local", "ray"], typer.Option(help="Where: this machine, or a Ray cluster.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster.", show_default="one on this machine, for this study")
    ] = None,
    gpus_per_run: Annotated[float, typer.Option(help="On Ray; 0.25 puts four runs on a GPU.", min=0)] = 0.0,
    cpus_per_run: Annotated[float, typer.Option(help="On Ray; also the threads of a run.", min=0.01)] = 1.0,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data sets.", show_default="CISSL_DATA")] = None,
    accelerator: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to train images.")] = "auto",
) -> None:
    """Run a study: what is done already is not done again, so the same command goes on where it was stopped.

    Started twice, here or on another machine that shares the folder, the two share the work.
    """
    from cissl import status as standings
    from cissl import study_files
    from cissl.cli_report import show
    from cissl.execution import Machine
    from cissl.records import readable_errors

    folder = _folder(study, out, dataset)
    asked = {"dataset": dataset, "methods": None if methods is None else _listed(methods), "seeds": seeds}
    given = {key: value for key, value in asked.items() if value is not None}
    made, title = study_files.load(study) if study_files.is_file(study) else _known(study)
    runs = _cut(made(**given), steps, _pairs(set_ or [], "--set"), _pairs(only or [], "--only"))
    machine = Machine(data_dir, accelerator)
    if on != "ray" and (address or gpus_per_run or cpus_per_run != 1):
        raise ValueError("--address, --gpus-per-run and --cpus-per-run are for a Ray cluster: give --on ray with them")
    if on == "ray" and jobs is not None:
        raise ValueError("--jobs is for this machine; on Ray --cpus-per-run and --gpus-per-run say how many fit")

    def workers() -> "Workers":
        if on == "ray":
            from cissl.clusters import Ray

            return Ray(folder, machine, address, cpus_per_run, gpus_per_run)
        return _local(runs, folder, machine, jobs)

    standings.describe(folder, _name(study), title, shlex.join(["cissl", *sys.argv[1:]]), [run.name for run in runs])
    failed = _execute(runs, folder, workers)
    with _stoppable(runs, folder):
        if _name(study) == "toy":
            from cissl.recipes.toy import analyse

            with readable_errors(folder):
                analyse(runs, folder)
        if _name(study) == "detection":
            from cissl.recipes.detection import analyse as count

            with readable_errors(folder):
                count(runs, folder, data_dir)
        show(folder, [run.name for run in runs])
    if failed:
        raise typer.Exit(1)


def status(
    study: StudyName,
    out: Out = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again every two seconds, until Ctrl-C or the end.")
    ] = False,
) -> None:
    """How a study stands: done, running, waiting, diverged, failed, and the time that is left."""
    from cissl import status as standings

    folder = find(study, out)
    if not watch:
        typer.echo(standings.text(standings.standing(folder)))
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    try:
        with Live(console=Console(), auto_refresh=False) as live:
            while True:
                found = standings.standing(folder)
                live.update(Text(standings.text(found)), refresh=True)
                if found.done + len(found.diverged) + len(found.failed) == found.total:
                    return
                time.sleep(WATCH_EVERY)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


# ---- Which runs


def _name(study: str) -> str:
    from cissl import study_files

    return study_files.name_of(study) if study_files.is_file(study) else study


def _known(study: str) -> tuple[Callable[..., Sequence["Description"]], str]:
    from cissl import recipes
    from cissl.names import unknown

    if study not in recipes.STUDIES:
        raise unknown("study", study, recipes.STUDIES)
    made = recipes.STUDIES[study]
    return made, what(made)


def what(study: Callable[..., Any]) -> str:
    """A study's title: the first line of what it says of itself."""
    return (study.__doc__ or study.__name__).strip().splitlines()[0].rstrip(".")


def _folder(study: str, out: Path | None, dataset: str | None) -> Path:
    """runs/STUDY, with the data set behind it where it is not the study's own."""
    from cissl import study_files

    name = _name(study)
    if not study_files.is_file(study):
        default = inspect.signature(_known(study)[0]).parameters.get("dataset")
        dataset = None if default is not None and default.default == dataset else dataset
    return _not_a_file(out or Path("runs") / (f"{name}-{dataset}" if dataset else name))


def find(study: str, out: Path | None) -> Path:
    """Where a study is: its folder, or that of its name."""
    name = _name(study)
    for folder in [out] if out else [Path("runs") / name, Path(study)]:
        if _not_a_file(folder).is_dir():
            return folder
    if not out and name == study:
        _known(study)  # a name that nobody knows is a mistake of its own
    where = out or Path("runs") / name
    raise ValueError(f"there is no {where}: run it with `cissl run {study}`, or say where it is with --out")


def _not_a_file(folder: Path) -> Path:
    if folder.is_file() and folder.suffix not in (".toml", ".py"):
        raise ValueError(f"{folder} is a file, and a study needs a folder: give another with --out")
    return folder


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    pairs = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{option} takes key=value, such as imbalance=100, got {text!r}")
        pairs[key.strip()] = value.strip()
    return pairs


def _cut(
    runs: Sequence["Description"], steps: int | None, changed: dict[str, str], only: dict[str, str]
) -> list["Description"]:
    """The runs with other steps and fields, and of those only the ones asked for."""
    changes: dict[str, Any] = {**changed, **({} if steps is None else {"steps": steps})}
    cut = list(dict.fromkeys(run.changed(**changes) for run in runs)) if changes else list(runs)
    for key, value in only.items():
        cut = _having(cut, key, value)
    return cut


def _having(runs: list["Description"], key: str, value: str) -> list["Description"]:
    from cissl.names import unknown

    fields = [{**run.model_dump(), **run.model_dump().get("options", {})} for run in runs]
    names = {name: None for row in fields for name in row}
    if key not in names:
        raise unknown("key in --only:", key, names)
    kept = [run for run, row in zip(runs, fields, strict=True) if key in row and _reads(row[key], value)]
    if not kept:
        there = {str(row[key]): None for row in fields if key in row}
        raise ValueError(f"no run of this study has {key}={value}; there are: {', '.join(there)}")
    return kept


def _reads(value: Any, text: str) -> bool:
    """Whether that is how one writes the value: 100 for 100.0 too."""
    try:
        return bool(float(text) == value)
    except ValueError:
        return text.lower() == str(value).lower()


# ---- Doing them


def _local(runs: Sequence["Description"], folder: Path, machine: "Machine", jobs: int | None) -> "Workers":
    from cissl.processes import Processes, cores
    from cissl.study import InHere, groups, pending

    if len(groups(pending(runs, folder))) == 1:
        return InHere(folder, machine)  # there is no other run that it could hurt
    return Processes(folder, jobs or cores(), machine)


def _execute(runs: Sequence["Description"], folder: Path, workers: Callable[[], "Workers"]) -> int:
    """How many runs failed."""
    started = time.monotonic()
    from cissl.study import execute_study, pending

    waiting = pending(runs, folder)
    if not waiting:
        typer.echo(f"All {len(runs)} runs are done already.")
        return 0
    with _stoppable(runs, folder), _progress(waiting, len(runs)) as progress:
        failures = execute_study(runs, folder, workers(), progress)
    failed = sum(len(failure.runs) for failure in failures)
    typer.echo(f"{len(waiting) - failed} runs done in {time.monotonic() - started:.0f} s.")
    for failure in failures:
        typer.echo(f"failed: {_which(failure.runs)}: {failure.reason}", err=True)
    return failed


def _which(runs: Sequence["Description"]) -> str:
    described = runs[0].model_dump()
    seeds = ", ".join(str(run.seed) for run in runs)
    return f"{described['dataset']}, {described['method']}, seed{'s' if len(runs) > 1 else ''} {seeds}"


@contextmanager
def _stoppable(runs: Sequence["Description"], folder: Path) -> Iterator[None]:
    """Ctrl-C: say what is done and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        from cissl.study import pending

        done = len(runs) - len(pending(runs, folder))
        typer.echo(f"\nStopped. {done} of {len(runs)} runs are done; the same command goes on from there.", err=True)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _progress(waiting: Sequence["Description"], of: int) -> Iterator[Any]:
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
