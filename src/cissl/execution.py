"""Executing runs: where the description, the data, the method, the loop and the folder meet."""

import copy
import importlib.util
import logging
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from lightning_fabric import Fabric
from lightning_fabric.loggers.tensorboard import TensorBoardLogger
from lightning_fabric.plugins.precision import MixedPrecision
from lightning_fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn

import cissl
from cissl import checkpoints, records
from cissl.batches import StackedBatches, Steps
from cissl.many_seeds import ManySeeds
from cissl.records import Curve, CurveFile, Result
from cissl.run import Description, Training
from cissl.task import OwnTask, Task, prepare
from cissl.training import (
    LOOK_EVERY,
    Average,
    EagerLearner,
    GraphLearner,
    Record,
    curve_of,
    first_not_finite,
    sgd,
    stops,
    train,
)

CHECKPOINTS = 20  # of a run, unless asked otherwise
SNAPSHOTS = 25  # about so many pictures of a run on its way, where it can be drawn


@runtime_checkable
class Trainable(Protocol):
    """What a run's description is made into: `cissl.task.Task` for samples with one label each, or another kind."""

    @property
    def run(self) -> Description: ...

    student: nn.Module

    @property
    def batches(self) -> Steps: ...

    @property
    def watched(self) -> tuple[str, ...]:
        """Which measured numbers each validation keeps; the lowest of the first selects the best."""

    @property
    def teacher_decay(self) -> float | None: ...

    @property
    def validates(self) -> bool: ...

    def teacher(self) -> nn.Module | None:
        """A copy of the student, where the method has a teacher."""

    def step(self, teacher: nn.Module | None) -> nn.Module:
        """The module that takes a batch and gives the losses by name."""

    def measure(self, network: nn.Module, part: str) -> dict[str, Any] | None:
        """What is reported of a network on "validation" or "test"; None where it says no numbers."""

    def facts(self) -> dict[str, Any]:
        """What the result says of the data."""

    def pictures(self) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """Arrays to be drawn of the trained student, by the name of their file."""


@runtime_checkable
class Drawable(Protocol):
    """What can be drawn while it trains, as the boundary of the toy sets."""

    def snapshot(self) -> npt.NDArray[np.uint8] | None:
        """How it looks now; None where there is nothing to draw."""

    def film(self, steps: Sequence[int], snapshots: Sequence[npt.NDArray[np.uint8]]) -> dict[str, npt.NDArray[Any]]:
        """The arrays of boundary-steps.npz."""


class Film:
    """Snapshots of a task on its way, at some of the looks: they draw nothing at random and move no statistics, so
    a run is the same with and without."""

    def __init__(self, task: Any, steps: int, wanted: bool) -> None:
        self.task = task if wanted and isinstance(task, Drawable) else None
        self.every, self.last = LOOK_EVERY * max(1, round(steps / LOOK_EVERY / SNAPSHOTS)), steps
        self.steps: list[int] = []
        self.snapshots: list[Tensor] = []

    def look(self, step: int) -> None:
        if self.task is None or step in self.steps or (step % self.every and step != self.last):
            return
        snapshot = self.task.snapshot()
        if snapshot is not None:
            self.steps.append(step)
            self.snapshots.append(torch.from_numpy(snapshot))

    def write(self, folder: Path) -> None:
        if self.task is not None and self.steps:
            film = self.task.film(self.steps, [snapshot.numpy() for snapshot in self.snapshots])
            records.write_arrays(folder / "boundary-steps.npz", film)


Prepare = Callable[[torch.device, tuple[int, int]], Trainable]


class Status(NamedTuple):
    """How a run stands, told at every look: `steps` are those since the last one."""

    step: int
    steps: int
    curve: Curve | None = None
    validation: dict[str, Any] | None = None


Watch = Callable[[Status], object]


class Trained(NamedTuple):
    """What a run leaves beside its result: the weights that were chosen, by network, and the curve of its losses."""

    weights: dict[str, dict[str, Tensor]]
    curve: dict[str, list[float]]


Keep = Callable[[Trained], object]


@dataclass(frozen=True)
class Machine:
    """What a run is executed on, and what it leaves on the way: nothing here is part of its description."""

    data_dir: Path | None = None
    accelerator: str = "auto"
    devices: int = 1
    checkpoint_every: int | None = None  # steps; None: twenty times a run
    checkpoint_minutes: float = 10.0
    cuda_graphs: bool = False  # a step as one CUDA graph: faster on a GPU that waits for the processor

    @property
    def kind(self) -> str:
        """The kind of device that "auto" is here."""
        if self.accelerator != "auto":
            return self.accelerator
        return "cuda" if torch.cuda.is_available() else "mps" if torch.mps.is_available() else "cpu"

    def fabric(self, run: Description) -> Fabric:
        accelerator = self.kind
        plugins = ExactInputs(run.precision, accelerator) if run.precision == "bf16-mixed" else None
        if self.cuda_graphs and (accelerator != "cuda" or self.devices > 1):
            raise ValueError("CUDA graphs are for one CUDA device: leave them out here")
        strategy = "ddp" if self.devices > 1 else "auto"
        try:
            return Fabric(accelerator=accelerator, devices=self.devices, strategy=strategy, plugins=plugins)
        except (RuntimeError, ValueError, MisconfigurationException) as error:
            raise ValueError(f"this machine cannot train on {self.devices} x {accelerator}: {error}") from error


for _name in ("lightning.fabric", "lightning_fabric", "lightning_utilities"):  # advice to whoever writes the loop
    logging.getLogger(_name).setLevel(logging.WARNING)


class ExactInputs(MixedPrecision):
    """Autocast for the networks' passes; the batch's own numbers stay as they are (VAT moves x by a thousandth)."""

    def convert_input(self, data: Any) -> Any:
        return data


# ---- One run, with checkpoints


def execute(
    run: Description,
    folder: str | Path | None = None,
    watch: Watch | None = None,
    machine: Machine | None = None,
    prepare: Prepare | None = None,
    keep: Keep | None = None,
) -> Result:
    """Train and evaluate one run.

    With a folder, it is written there: a run that is done is not done again, and one that was stopped goes on from its
    last checkpoint, to the same result. `prepare(device, shard)` makes what is trained; a description that names its
    data does that itself. `keep` is given the trained weights, unless the run diverged.
    """
    machine, folder = machine or Machine(), None if folder is None else Path(folder)
    if folder is not None and (done := records.read_result(folder)) is not None:
        check_same(run, done["run"], folder)
        if keep is not None and done["status"] == "done":
            keep(read_trained(folder))
        return done
    fabric = machine.fabric(run)
    fabric.launch()
    if folder is None or fabric.global_rank > 0:
        return Execution(run, folder, watch, machine, fabric, prepare).result(keep)
    with records.only_process(folder):
        begin(run, folder)
        return Execution(run, folder, watch, machine, fabric, prepare).result(keep)


def begin(run: Description, folder: Path) -> None:
    """The description is written first, so that a folder that cannot be written is found out before training. One that
    got no further than its description, for want of data perhaps, stands in nobody's way."""
    if (folder / "run.json").exists() and checkpoints.newest_first(folder):
        check_same(run, records.read_json(folder / "run.json"), folder)
    with records.readable_errors(folder):
        records.write_json(folder / "run.json", run.model_dump())


def check_same(run: Description, found: dict[str, Any], folder: Path) -> None:
    mine = run.model_dump()
    if found != mine:
        differing = [name for name in mine.keys() | found.keys() if mine.get(name) != found.get(name)]
        what = ", ".join(f"{name} {found.get(name)!r} there, {mine.get(name)!r} here" for name in sorted(differing))
        raise ValueError(f"{folder} holds another run ({what}): choose another folder, or give the same description")


class Execution:
    """One run under way: all that changes while it trains, and what a checkpoint therefore holds."""

    def __init__(
        self,
        run: Description,
        folder: Path | None,
        watch: Watch | None,
        machine: Machine,
        fabric: Fabric,
        prepare: Prepare | None = None,
    ) -> None:
        self.started = time.perf_counter()
        self.run, self.folder, self.watch, self.machine, self.fabric = run, folder, watch, machine, fabric
        self.first = fabric.global_rank == 0
        shard = (fabric.global_rank, fabric.world_size)
        task = prepare(fabric.device, shard) if prepare else run.task(fabric.device, machine.data_dir, shard)
        assert isinstance(task, Trainable)
        self.task = task
        if run.sync_batchnorm and fabric.world_size > 1:
            if fabric.device.type != "cuda":
                raise ValueError("sync_batchnorm needs GPUs: torch synchronises batch statistics there only")
            task.student = nn.SyncBatchNorm.convert_sync_batchnorm(task.student)  # type: ignore[no-untyped-call]
        self.teacher = task.teacher()
        self.optimizer = sgd(task.student.parameters(), run.learning_rate, run.momentum, run.weight_decay, run.nesterov)
        kind = GraphLearner if machine.cuda_graphs else EagerLearner
        step = fabric.setup(task.step(self.teacher), self.optimizer)[0]
        self.learner = kind(step, list(task.student.parameters()), fabric.backward, list(self.networks.values()))
        self.average = average_of(
            task.teacher_decay, task.student.parameters(), self.teacher.parameters() if self.teacher is not None else ()
        )
        self.step, self.diverged_at, self.seconds = 0, 0, 0.0
        self.validated = Validated(task)
        self.curve = CurveFile(folder / "steps.csv" if folder is not None and self.first else None)
        self.board = tensorboard(folder) if folder is not None and self.first else None
        self.film = Film(task, run.steps, folder is not None and self.first)
        self.saved_at = time.monotonic()
        if folder is not None and (state := checkpoints.load(folder, self.say)) is not None:
            self.restore(state)

    def say(self, text: str) -> None:
        if self.first:
            print(text, file=sys.stderr)

    @property
    def networks(self) -> dict[str, nn.Module]:
        return {"student": self.task.student} | ({"teacher": self.teacher} if self.teacher is not None else {})

    def result(self, keep: Keep | None = None) -> Result:
        if not self.diverged_at and self.step < self.run.steps:
            self.take_steps()
        seconds = self.seconds + time.perf_counter() - self.started
        folder = self.folder if self.first else None
        if self.board is not None:
            self.board.finalize("success")
        result = finish(
            self.task,
            self.networks,
            self.diverged_at,
            self.curve,
            seconds,
            folder,
            self.validated,
            self.step,
            keep,
            self.film,
        )
        if folder is not None:
            checkpoints.remove(folder)
        self.fabric.barrier()
        return result

    def take_steps(self) -> None:
        run, machine = self.run, self.machine
        checkpoint_every = machine.checkpoint_every or max(1, run.steps // CHECKPOINTS // LOOK_EVERY) * LOOK_EVERY
        validates, validate_every = self.task.validates, validation_interval(self.task)
        self.film.look(self.step)
        taken = train(
            self.learner, self.optimizer, self.task.batches, run.rate, range(self.step + 1, run.steps + 1), self.average
        )
        for stop in stops(self.step, run.steps, LOOK_EVERY, validate_every, checkpoint_every):
            if run.enough(self.validated.seen):
                return
            curve = self.shared(list(islice(taken, stop - self.step)))
            steps, self.step = stop - self.step, stop
            self.curve.append(curve)
            self.diverged_at = int(first_not_finite(curve)[0])
            self.film.look(stop)
            validated = None
            if validates and not self.diverged_at and (stop % validate_every == 0 or stop == run.steps):
                validated = self.validate()
            if self.watch is not None and self.first:
                self.watch(Status(stop, steps, curve, validated))
            if self.board is not None:
                means = {name: float(values.mean()) for name, values in curve.losses.items()}
                seen = {name: value for name, value in (validated or {}).items() if name != "step"}
                self.board.log_metrics({**means, "learning_rate": float(curve.learning_rates[-1]), **seen}, stop)
            if self.diverged_at:
                return
            minutes = (time.monotonic() - self.saved_at) / 60
            if stop < run.steps and (stop % checkpoint_every == 0 or minutes >= machine.checkpoint_minutes):
                self.save()

    def shared(self, taken: list[Record]) -> Curve:
        """The stretch's losses on the host, their mean over the processes: the only place that waits for the device."""

        def mean(values: Tensor) -> Tensor:
            shared = self.fabric.all_reduce(values, reduce_op="mean")
            assert isinstance(shared, Tensor)
            return shared

        return curve_of(taken, mean)

    def validate(self) -> dict[str, Any] | None:
        """How student and teacher do on the validation samples; None where they say no numbers."""
        measured_by = self.validated.measure(self.networks)
        if self.fabric.broadcast(None in measured_by.values()):  # its losses are numbers yet, its predictions are not
            self.diverged_at = self.step
            return None
        return self.validated.add(self.step, measured_by, self.networks)

    # Checkpoints

    def save(self) -> None:
        self.saved_at = time.monotonic()
        if self.folder is None or not self.first:
            return
        state = {
            "run": self.run.name,
            "step": self.step,
            "networks": copied(self.networks),
            "optimizer": self.optimizer.state_dict(),
            "best": self.validated.best,
            "validations": self.validated.seen,
            "curve": (self.curve.names, self.curve.rows),
            "film": (self.film.steps, self.film.snapshots),
            "seconds": self.seconds + time.perf_counter() - self.started,
        }
        with records.readable_errors(self.folder):
            checkpoints.save(self.folder, self.step, state)

    def restore(self, state: dict[str, Any]) -> None:
        if state["run"] != self.run.name:
            raise ValueError(f"the checkpoints in {self.folder} are of another run: choose another folder")
        for who, network in self.networks.items():
            network.load_state_dict(state["networks"][who])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.validated.best, self.validated.seen = state["step"], state["best"], state["validations"]
        self.curve.names, self.curve.rows = state["curve"]
        self.film.steps, self.film.snapshots = state.get("film", ([], []))
        self.seconds = state["seconds"]
        self.say(f"Going on after step {self.step} of {self.run.steps}.")
        if self.watch is not None and self.first:
            self.watch(Status(self.step, self.step))


class Validated:
    """What the validations of a run have shown so far, and the networks as they were at the best of them."""

    def __init__(self, task: Trainable) -> None:
        self.task = task
        self.seen: list[dict[str, Any]] = []
        self.best: dict[str, dict[str, Tensor]] | None = None

    def measure(self, networks_: Mapping[str, nn.Module]) -> dict[str, dict[str, Any] | None]:
        return {who: self.task.measure(network, "validation") for who, network in networks_.items()}

    def add(
        self, step: int, measured_by: Mapping[str, dict[str, Any] | None], networks_: Mapping[str, nn.Module]
    ) -> dict[str, Any]:
        """Remember a validation; the student's first best is what is kept."""
        seen: dict[str, Any] = {"step": step}
        for who, measured in measured_by.items():
            assert measured is not None
            seen |= {f"{who}_{name}": measured[name] for name in self.task.watched}
        if all(seen[self.selector] < before[self.selector] for before in self.seen):
            self.best = copied(networks_)
        self.seen.append(seen)
        return seen

    @property
    def selector(self) -> str:
        return f"student_{self.task.watched[0]}"

    @property
    def best_step(self) -> int | None:
        errors = [seen[self.selector] for seen in self.seen]
        return self.seen[int(np.argmin(errors))]["step"] if errors else None


def validation_interval(task: Trainable) -> int:
    """Steps from one validation to the next; all of them where there is none."""
    return max(1, round(task.run.steps / task.run.validations)) if task.validates else task.run.steps


def tensorboard(folder: Path) -> TensorBoardLogger | None:
    """Curves for TensorBoard in the run's folder, where the extra cissl[tensorboard] is installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    return TensorBoardLogger(folder, name="tensorboard", version="")


def copied(networks_: Mapping[str, nn.Module]) -> dict[str, dict[str, Tensor]]:
    return {
        who: {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}
        for who, network in networks_.items()
    }


# ---- Many seeds


def execute_seeds(
    runs: Sequence[Training],
    folders: Sequence[str | Path | None] | None = None,
    watch: Watch | None = None,
    *,
    compiled: bool = False,
    prepare: Callable[[Any], Task | OwnTask] = prepare,
    keep: Callable[[int, Trained], object] | None = None,
) -> list[Result]:
    """Train runs that differ in nothing but their seed at once, on the processor, and give their results in order.

    A result is the same however many are trained together, to the bit with batches of a multiple of 4 samples, as the
    paper's (matrix kernels round by how their numbers lie in memory). So those that are done already, in folders as
    `execute` has them, are left out. Everything is done on one thread. `prepare(run)` makes what is trained; `keep` is
    given each run's place in the list and its trained weights, unless it diverged.
    """
    if len({records.canonical({**run.model_dump(), "seed": 0}) for run in runs}) > 1:
        raise ValueError("runs trained at once may differ in their seed only: train the others on their own")
    places = [None if folder is None else Path(folder) for folder in folders or [None] * len(runs)]
    if len(places) != len(runs):
        raise ValueError(f"expected a folder for each of {len(runs)} runs, got {len(places)}")
    done = [None if folder is None else records.read_result(folder) for folder in places]
    waiting = [place for place, result in enumerate(done) if result is None]
    for place, (folder, result) in enumerate(zip(places, done, strict=True)):
        if keep is not None and folder is not None and result is not None and result["status"] == "done":
            keep(place, read_trained(folder))
    for place in waiting:
        if (folder := places[place]) is not None:
            begin(runs[place], folder)
    with one_thread():
        keepers = [None if keep is None else partial(keep, place) for place in waiting]
        tasks = [prepare(runs[place]) for place in waiting]
        folders_ = [places[place] for place in waiting]
        trained = iter(train_seeds(tasks, folders_, watch, compiled, keepers) if waiting else ())
    return [next(trained) if result is None else result for result in done]


@contextmanager
def one_thread() -> Iterator[None]:
    """Of many tiny operations, several threads would mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_seeds(
    tasks: Sequence[Task | OwnTask],
    folders: Sequence[Path | None],
    watch: Watch | None,
    compiled: bool,
    keepers: Sequence[Keep | None],
) -> list[Result]:
    started, first = time.perf_counter(), tasks[0].run
    each = [SeedNetworks(task, folder is not None) for task, folder in zip(tasks, folders, strict=True)]
    seeds = ManySeeds(first.made, first.reweight, [one.task.student for one in each], compiled=compiled)
    optimizer = sgd(seeds.student.values(), first.learning_rate, first.momentum, first.weight_decay)
    average = average_of(first.made.teacher_decay, seeds.student.values(), seeds.teacher.values())
    batches = StackedBatches([task.batches for task in tasks])
    taken = train(seeds, optimizer, batches, first.rate, range(1, first.steps + 1), average)
    curves, diverged_at, step = follow(taken, seeds, each, watch)
    seconds = (time.perf_counter() - started) / len(tasks)
    results = []
    for place, (one, folder, keep) in enumerate(zip(each, folders, keepers, strict=True)):
        stopped = int(diverged_at[place])
        curve = CurveFile(folder / "steps.csv" if folder is not None else None)
        for stretch in curves:
            if stretch.steps[0] <= (stopped or first.steps):  # other seeds may have gone on
                curve.append(stretch, place)
        ended = (stopped, curve, seconds, folder, one.validated, step, keep, one.film)
        results.append(finish(one.task, one.networks, *ended))
    return results


class SeedNetworks:
    """The networks of one of many seeds, and what its validations have shown."""

    def __init__(self, task: Task | OwnTask, filmed: bool) -> None:
        self.task, self.validated, self.film = task, Validated(task), Film(task, task.run.steps, filmed)
        teacher = task.teacher()
        self.networks = {"student": task.student} | ({} if teacher is None else {"teacher": teacher})

    def validate(self, step: int) -> dict[str, Any] | None:
        measured_by = self.validated.measure(self.networks)
        return None if None in measured_by.values() else self.validated.add(step, measured_by, self.networks)

    @property
    def has_enough(self) -> bool:
        return self.task.run.enough(self.validated.seen)


def write_back(seeds: ManySeeds, each: Sequence[SeedNetworks]) -> None:
    """Put the parameters that were trained together into each seed's own networks."""
    for who, parameters in (("student", seeds.student), ("teacher", seeds.teacher)):
        if parameters:
            seeds.write_back([one.networks[who] for one in each], parameters)


def follow(
    taken: Iterator[Record], seeds: ManySeeds, each: Sequence[SeedNetworks], watch: Watch | None
) -> tuple[list[Curve], npt.NDArray[np.int64], int]:
    """Take the steps; for each seed the step at which it diverged, else 0, and the last step. What no seed needs any
    more, because all have diverged or have validated enough, is not trained. At every look, the last too, each seed's
    networks are brought up to date."""
    task, steps = each[0].task, each[0].task.run.steps
    validate_every = validation_interval(task)
    seen: list[Curve] = []
    diverged_at, step = np.zeros(len(each), dtype=np.int64), 0
    for one in each:
        one.film.look(0)
    for stop in stops(0, steps, LOOK_EVERY, validate_every):
        seen.append(curve_of(list(islice(taken, stop - step))))
        diverged_at = np.where(diverged_at == 0, first_not_finite(seen[-1]), diverged_at)
        validated = None
        write_back(seeds, each)
        for one in each:
            one.film.look(stop)
        if task.validates and (stop % validate_every == 0 or stop == steps):
            for place in np.flatnonzero(diverged_at == 0).tolist():
                if not each[place].has_enough:
                    validated = each[place].validate(stop)
                    diverged_at[place] = 0 if validated else stop
        if watch is not None:
            watch(Status(stop, stop - step, seen[-1], validated))
        step = stop
        if all(at or one.has_enough for at, one in zip(diverged_at, each, strict=True)):
            break
    return seen, diverged_at, step


# ---- What both have in common


def average_of(decay: float | None, student: Iterable[Tensor], teacher: Iterable[Tensor]) -> Average | None:
    return None if decay is None else Average(teacher, student, decay)


def finish(
    task: Trainable,
    networks_: Mapping[str, nn.Module],
    diverged_at: int,
    curve: CurveFile,
    seconds: float,
    folder: Path | None,
    validated: Validated,
    step: int,
    keep: Keep | None = None,
    film: Film | None = None,
) -> Result:
    """Evaluate what was trained, and write it: the result last, so that whoever sees it finds the rest.

    `step` is the last one taken.
    """
    run, best_step, best = task.run, validated.best_step, validated.best
    measured = {} if diverged_at else {who: task.measure(network, "test") for who, network in networks_.items()}
    if None in measured.values():
        diverged_at, measured = step, {}  # the last step left a network that says nothing
    chosen = measured
    if best is not None and measured and best_step != step:
        chosen = {}
        for who, network in copy.deepcopy(dict(networks_)).items():
            network.load_state_dict(best[who])
            chosen[who] = task.measure(network, "test")
    result: Result = {
        "run": run.model_dump(),
        "status": "diverged" if diverged_at else "done",
        "diverged_at": diverged_at or None,
        "student": chosen.get("student"),
        "teacher": chosen.get("teacher"),
        "final": measured or None,
        "best_step": best_step,
        "validation": validated.seen,
        **task.facts(),
        "steps": run.steps,
        "seconds": round(seconds, 3),
        "versions": versions(),
        "hardware": hardware(next(task.student.parameters()).device),
    }
    states = best or copied(networks_)
    if keep is not None and measured:
        keep(Trained(states, curve.columns()))
    if folder is None:
        return result
    with records.readable_errors(folder):
        curve.write()
        if measured:
            if film is not None:
                film.write(folder)
            weights = {f"{who}/{n}": value.numpy() for who, state in states.items() for n, value in state.items()}
            records.write_arrays(folder / "weights.npz", weights)
            for name, arrays in task.pictures().items():
                records.write_arrays(folder / name, arrays)
        records.write_json(folder / "result.json", result)
    return result


def read_trained(folder: Path) -> Trained:
    """What a run that is done has left in its folder."""
    weights: dict[str, dict[str, Tensor]] = {}
    with np.load(folder / "weights.npz", allow_pickle=False) as kept:
        for name in kept.files:
            who, _, parameter = name.partition("/")
            weights.setdefault(who, {})[parameter] = torch.from_numpy(kept[name])
    return Trained(weights, records.read_columns(folder / "steps.csv"))


def versions() -> dict[str, str]:
    return {
        "cissl": cissl.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def hardware(device: torch.device) -> str:
    """The processor, or the accelerator, and what may be used of it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = [line.split(":", 1)[1] for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        name = named[0].strip() if named else name
    return f"{name}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
