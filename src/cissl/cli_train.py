"""`cissl train`: one run by its description, with progress, checkpoints and a result to read."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from cissl.execution import Status
    from cissl.run import Description

EVERY_LINE = 10.0  # seconds between lines where there is no terminal


def _given(what: str) -> Any:
    """An option whose default depends on the data set: the command's own help says which."""
    return typer.Option(help=what, show_default=False)


OWN = "Your own data"


def _own(what: str, default: str | bool = False, **limits: Any) -> Any:
    """An option of one's own data."""
    return typer.Option(help=what, show_default=default, rich_help_panel=OWN, **limits)


def train(
    out: Annotated[Path, typer.Option(help="The folder of the run, or of the model: the same command goes on there.")],
    dataset: Annotated[
        str | None, typer.Option(help="See `cissl data list`, or module:callable.", show_default=False)
    ] = None,
    images: Annotated[
        Path | None,
        _own("Images of your own: LABELED/CLASS/image.jpg, or a CSV with columns path and label (empty: unlabeled)."),
    ] = None,
    table: Annotated[Path | None, _own("Features of your own: a .csv or .parquet file with a label column.")] = None,
    arrays: Annotated[Path | None, _own("A .npz file with X, y and perhaps X_unlabeled.")] = None,
    method: Annotated[str, typer.Option(help="See `cissl list`, or module:Class.")] = "mean-teacher+scl",
    labeled: Annotated[int | None, _given("Labeled samples.")] = None,
    imbalance: Annotated[float | None, _given("ρ of the labeled samples.")] = None,
    unlabeled: Annotated[
        str | None,
        typer.Option(
            help="Of your own data: a folder of images, a CSV of paths, or a table without labels. Of a data set: the "
            "imbalance of the unlabeled samples, same, half or uniform.",
            show_default="same",
        ),
    ] = None,
    unlabeled_total: Annotated[int | None, _given("Unlabeled samples.")] = None,
    validation_per_class: Annotated[int | None, _given("Held out.")] = None,
    on_shortage: Annotated[str | None, _given("Where a class has too few samples: error, or cap to take them.")] = None,
    reweight: Annotated[str, typer.Option(help="Of the labeled loss: ce (none), in, focal, cb.")] = "ce",
    option: Annotated[
        list[str] | None, typer.Option(help="A hyper-parameter of the method, as name=value; repeatable.")
    ] = None,
    network: Annotated[str | None, _given("See `cissl list`, or module:callable.")] = None,
    preprocessing: Annotated[str | None, _given("none, standardize, gcn+zca; of a table also features.")] = None,
    steps: Annotated[int | None, _given("Every schedule scales with them.")] = None,
    learning_rate: Annotated[float | None, _given("At the start.")] = None,
    validations: Annotated[int | None, _given("How often to validate.")] = None,
    precision: Annotated[str, typer.Option(help="32-true or bf16-mixed.")] = "32-true",
    sync_batchnorm: Annotated[
        bool, typer.Option("--sync-batchnorm", help="Statistics over all devices' samples.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of everything random in the run.")] = 0,
    accelerator: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to train.")] = "auto",
    devices: Annotated[
        int | None,
        typer.Option(
            help="How many; each takes its share of every batch.", min=1, show_default="1, or as torchrun or Slurm say"
        ),
    ] = None,
    cuda_graphs: Annotated[
        bool, typer.Option("--cuda-graphs", help="A step as one CUDA graph: for one GPU, faster.")
    ] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data sets.", show_default="CISSL_DATA")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Steps.", min=1, show_default="20 times a run")] = None,
    checkpoint_minutes: Annotated[float, typer.Option(help="At least this often.", min=0)] = 10.0,
    size: Annotated[
        int | None, _own("Height and width that images are resized to.", "that of the images, at most 64", min=4)
    ] = None,
    resize: Annotated[
        Literal["letterbox", "stretch"] | None, _own("Keep shapes and fill the border, or stretch.", "letterbox")
    ] = None,
    color: Annotated[Literal["auto", "rgb", "grey"] | None, _own("What images are read as.", "auto")] = None,
    max_broken: Annotated[int | None, _own("Images that may be unreadable; they are listed.", "10", min=0)] = None,
    label: Annotated[str | None, _own("The table's label column; an empty cell is unlabeled.", "label")] = None,
    ignore: Annotated[list[str] | None, _own("A column of the table that is no feature; repeatable.")] = None,
    validation_fraction: Annotated[
        float | None,
        _own(
            "Of the labeled samples, held out to choose the best step by; 0: none.", "0.1 where that is enough", min=0
        ),
    ] = None,
    batch_size: Annotated[int | None, _own("Samples of a step, labeled and unlabeled.", "by the data", min=2)] = None,
    models: Annotated[int | None, _own("Train so many, and average what they predict.", "1", min=1)] = None,
    flip: Annotated[bool, typer.Option("--flip", help="Mirror images at random.", rich_help_panel=OWN)] = False,
) -> None:
    """Train a model on data of your own, or a run on a data set known by name.

    Your own (--images, --table, --arrays): --out is a model for `cissl predict`. What is not given, the data decides.

    By name (--dataset): what is not given is the paper's, for the data set, else for all images.

    The same command goes on where it was stopped.
    """
    if not (dataset or images or table or arrays):
        raise ValueError("nothing to train on: give --images, --table or --arrays, or the name of a --dataset")
    from cissl.execution import Machine, execute
    from cissl.run import Run

    own = images or table or arrays
    _check_belongs(own is not None, {
        "labeled": labeled, "imbalance": imbalance, "unlabeled-total": unlabeled_total, "dataset": dataset,
        "validation-per-class": validation_per_class, "on-shortage": on_shortage, "validations": validations,
        "sync-batchnorm": sync_batchnorm or None, "cuda-graphs": cuda_graphs or None,
    }, {
        "size": size, "resize": resize, "color": color, "max-broken": max_broken, "label": label, "ignore": ignore,
        "validation-fraction": validation_fraction, "batch-size": batch_size, "models": models, "flip": flip or None,
    })  # fmt: skip
    machine = Machine(
        data_dir=data_dir, accelerator=accelerator, devices=devices or started_together(), cuda_graphs=cuda_graphs,
        checkpoint_every=checkpoint_every, checkpoint_minutes=checkpoint_minutes,
    )  # fmt: skip
    if own is not None:
        from cissl import cli_own_data

        asked = cli_own_data.Asked(
            images=images, table=table, arrays=arrays, unlabeled=None if unlabeled is None else Path(unlabeled),
            label=label, ignore=ignore or (), size=size, color=color, resize=resize, max_broken=max_broken,
        )  # fmt: skip
        parameters: dict[str, Any] = {
            "method": method, "reweight": reweight, "options": _options(option or []) or None, "network": network,
            "preprocessing": preprocessing, "steps": steps, "learning_rate": learning_rate, "precision": precision,
            "random_state": seed, "batch_size": batch_size, "n_models": models, "flip": flip or None,
            "validation_fraction": validation_fraction or None,
            "early_stopping": None if validation_fraction is None else validation_fraction > 0,
        }  # fmt: skip
        parameters = {name: value for name, value in parameters.items() if value is not None}
        cli_own_data.train(asked, parameters, out, machine)
        return
    given: dict[str, Any] = {
        "dataset": dataset, "method": method, "unlabeled": unlabeled, "reweight": reweight, "precision": precision,
        "labeled": labeled, "imbalance": imbalance, "unlabeled_total": unlabeled_total, "network": network,
        "validation_per_class": validation_per_class, "preprocessing": preprocessing, "steps": steps,
        "learning_rate": learning_rate, "validations": validations, "on_shortage": on_shortage,
    }  # fmt: skip
    run = Run(
        options=_options(option or []), sync_batchnorm=sync_batchnorm, seed=seed,
        **{name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    done = (out / "result.json").exists()
    with watching(run) as watch:
        result = execute(run, out, watch, machine)
    if speaks():
        if done:
            typer.echo("This run is done already.")
        _print(result, out)


def _check_belongs(own: bool, of_data_sets: dict[str, Any], of_own: dict[str, Any]) -> None:
    """An option that would do nothing is a mistake."""
    for name, value in (of_data_sets if own else of_own).items():
        if value is not None:
            kinds = "a --dataset" if own else "data of your own (--images, --table, --arrays)"
            raise ValueError(f"--{name} is for {kinds}: leave it out" if name != "dataset" else BOTH)


BOTH = (
    "--dataset is a data set known by name, and --images, --table and --arrays are data of your own: give one of them"
)


def started_together() -> int:
    """How many processes of this machine torchrun or a Slurm step has started for this one run."""
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    if TorchElasticEnvironment.detect():
        return int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return int(os.environ.get("SLURM_NTASKS_PER_NODE", 1)) if SLURMEnvironment.detect() else 1


def speaks() -> bool:
    """Of the processes of one run only the first prints."""
    return os.environ.get("LOCAL_RANK", os.environ.get("SLURM_PROCID", "0")) == "0"


def _options(given: list[str]) -> dict[str, float | str]:
    options: dict[str, float | str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--option takes name=value, such as beta=0.3, got {text!r}")
        try:
            options[name] = float(value)
        except ValueError:
            options[name] = value
    return options


@contextmanager
def watching(run: "Description") -> Iterator[Callable[["Status"], object]]:
    """A run's progress; and Ctrl-C says how to go on."""
    try:
        with progress(run.steps) as watch:
            yield watch
    except KeyboardInterrupt:
        typer.echo("\nStopped; the same command goes on from the last checkpoint.", err=True)
        raise typer.Exit(130) from None


@contextmanager
def progress(steps: int) -> Iterator[Callable[["Status"], object]]:
    """A bar on a terminal, else a line every few seconds: rate, time left, losses, learning rate, last validation."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task, told = bar.add_task("", total=steps), Told(steps)

            def show(status: "Status") -> None:
                bar.update(task, completed=status.step, description=told(status))

            yield show
        return
    told, last = Told(steps), [time.monotonic()]

    def line(status: "Status") -> None:
        text = told(status)
        if status.validation is not None or status.step == steps or time.monotonic() - last[0] >= EVERY_LINE:
            last[0] = time.monotonic()
            typer.echo(f"step {status.step} of {steps}, {told.left(status.step)} left, {text}", err=True)

    yield line


class Told:
    """What there is to tell of a run under way."""

    def __init__(self, steps: int) -> None:
        self.steps, self.started, self.first = steps, time.monotonic(), 0
        self.validation = ""

    def rate(self, step: int) -> float:
        return (step - self.first) / max(time.monotonic() - self.started, 1e-9)

    def left(self, step: int) -> str:
        seconds = (self.steps - step) / max(self.rate(step), 1e-9)
        return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"

    def __call__(self, status: "Status") -> str:
        if status.curve is None:  # gone on from a checkpoint: what was done before says nothing of the rate
            self.started, self.first = time.monotonic(), status.step
            return ""
        if status.validation is not None:
            seen = status.validation
            self.validation = f"validation error {100 * seen['student_error']:.2f} %"
            if "teacher_error" in seen:
                self.validation += f" (teacher {100 * seen['teacher_error']:.2f} %)"
        losses = ", ".join(f"{name} {values.mean():.4g}" for name, values in status.curve.losses.items())
        parts = [f"{self.rate(status.step):.1f} steps/s", losses, f"lr {status.curve.learning_rates[-1]:.3g}"]
        return ", ".join([*parts, self.validation] if self.validation else parts)


def _print(result: dict[str, Any], out: Path) -> None:
    if result["status"] == "diverged":
        typer.echo(f"The loss was not a finite number at step {result['diverged_at']}: the run diverged.")
        typer.echo(f"Written: {out / 'result.json'}. Try a smaller --learning-rate.")
        return
    chosen = f"best validation (step {result['best_step']})" if result["best_step"] else "last step"
    typer.echo(f"Test error in % at the {chosen}")
    typer.echo(f"{'':9}{'all':>8}{'major':>8}{'minor':>8}{'balanced':>10}")
    for who in ("student", "teacher"):
        if (seen := result[who]) is not None:
            numbers = (seen[name] for name in ("error", "major_error", "minor_error", "balanced_error"))
            all_, major, minor, balanced = ("–" if number is None else f"{100 * number:.2f}" for number in numbers)
            typer.echo(f"  {who}{all_:>8}{major:>8}{minor:>8}{balanced:>10}")
    typer.echo(f"Labeled samples per class: {', '.join(map(str, result['labeled_counts']))}")
    typer.echo(f"Unlabeled:                 {', '.join(map(str, result['unlabeled_counts']))}")
    typer.echo(f"Written: {out / 'result.json'}")
