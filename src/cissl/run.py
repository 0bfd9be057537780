"""A run: its frozen, validated description, and its execution, where all the parts meet."""

import copy
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor, nn

import cissl
from cissl import datasets, losses, metrics, networks, records, schedules
from cissl.batches import Batches, StackedBatches
from cissl.many_seeds import ManySeeds
from cissl.methods import Method, method
from cissl.names import unknown
from cissl.objective import Reweight, Step, check_reweight
from cissl.protocol import Split, split
from cissl.randomness import stream
from cissl.records import Result
from cissl.training import Average, Curve, EagerLearner, all_finite, curves, first_not_finite, sgd, train
from cissl.views import Views

Progress = Callable[[int], object]  # told how many steps were done since the last call
EVALUATED_AT_ONCE = 1000  # samples
GRID = 200  # points of a decision boundary's picture, each way

TOY: dict[str, Any] = {
    "imbalance": 5, "validation_per_class": 0, "network": "toy-mlp", "noise": 0.15, "steps": 5_000,
    "labeled_batch": 20, "unlabeled_batch": 80, "schedule": "step", "weight_decay": 0.0,
}  # fmt: skip
# What the paper does differently for a data set than the defaults of Run.
PAPER: dict[str, dict[str, Any]] = {
    "two-moons": {**TOY, "labeled": 12, "unlabeled_total": 3000},
    "four-spins": {**TOY, "labeled": 11, "unlabeled_total": 2658},
}
# Likewise for hyper-parameters of methods, where the method has them.
PAPER_OPTIONS: dict[str, dict[str, Any]] = {
    "two-moons": {"form": "linear"},
    "four-spins": {"form": "linear"},
    "cifar10": {"epsilon": 6.0},
}


class Run(BaseModel):
    """One training run, completely described: the same Run gives the same result.

    `Run(dataset="two-moons", method="pi", seed=3)` is the paper's run of that name; every field can be given. The
    defaults are those of the paper's images (Table "Hyperparameters" of its supplement), and `PAPER` holds what it does
    differently for a data set. `options` are the method's hyper-parameters.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    dataset: str
    labeled: int = Field(4000, gt=0)
    imbalance: float = Field(100.0, ge=1)
    unlabeled: Literal["same", "half", "uniform"] = "same"
    unlabeled_total: int | None = Field(None, ge=0)
    validation_per_class: int = Field(0, ge=0)

    method: str = "mean-teacher+scl"
    options: dict[str, float | str] = {}
    reweight: Reweight = "ce"
    network: str = "wide-resnet-28-2"
    noise: float = Field(0.0, ge=0)

    steps: int = Field(500_000, gt=0)
    labeled_batch: int = Field(50, gt=0)
    unlabeled_batch: int = Field(50, ge=0)
    learning_rate: float = Field(0.1, gt=0)
    schedule: schedules.LearningRateSchedule = "cosine"
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)
    ramp: float = Field(0.4, ge=0)  # the consistency's ramp over steps: 200k of 500k, and 2,000 of 5,000
    seed: int = Field(0, ge=0)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ValueError("; ".join(_sentence(problem) for problem in error.errors())) from None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """Names are checked, and what was not given is filled in: the paper's for the data set and the method."""
        for name in given:
            if name not in cls.model_fields:
                raise unknown("field of a run", name, cls.model_fields)
        dataset = given.get("dataset")
        fields = {**PAPER.get(dataset, {}), **given} if isinstance(dataset, str) else dict(given)
        if isinstance(dataset, str) and dataset not in datasets.DATASETS:
            raise unknown("data set", dataset, datasets.DATASETS)
        name, options = fields.get("method", cls.model_fields["method"].default), fields.get("options", {})
        if not isinstance(name, str) or not isinstance(options, Mapping) or any(type(o) is not str for o in options):
            return fields  # pydantic says what is wrong
        known = method(name).options
        paper = {key: value for key, value in PAPER_OPTIONS.get(str(dataset), {}).items() if key in known}
        complete = method(name, **{**paper, **options})
        fields |= {"method": complete.name, "options": complete.options}
        if not complete.needs_unlabeled and "unlabeled_batch" not in given:
            sizes = [fields.get(size, cls.model_fields[size].default) for size in ("labeled_batch", "unlabeled_batch")]
            fields |= {"unlabeled_batch": 0}
            if "labeled_batch" not in given:
                fields |= {"labeled_batch": sum(sizes)}  # supervised learning fills the batch with labeled samples
        return fields

    @model_validator(mode="after")
    def _check(self) -> "Run":
        made = method(self.method, **self.options)
        check_reweight(made, self.reweight)
        if made.needs_unlabeled and self.unlabeled_batch == 0:
            raise ValueError(f"{self.method!r} learns from unlabeled samples: give unlabeled_batch at least 1, not 0")
        if not made.needs_unlabeled and self.unlabeled_batch:
            raise ValueError(f"{self.method!r} uses no unlabeled samples: leave unlabeled_batch out, or give 0")
        return self

    @property
    def made(self) -> Method:
        return method(self.method, **self.options)

    @property
    def name(self) -> str:
        """The hash of the description; the run's folder has it as its name."""
        return records.name_of(self.model_dump())

    def __hash__(self) -> int:
        return hash(self.name)

    def rate(self, step: int) -> float:
        return self.learning_rate * schedules.learning_rate(self.schedule, step, self.steps)

    def ramped(self, step: int) -> float:
        return schedules.ramp(step, self.ramp * self.steps)


def _sentence(problem: Any) -> str:
    """pydantic's error as one of ours."""
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    where = ".".join(str(place) for place in problem["loc"])
    if problem["type"] == "missing":
        return f"a run needs a {where}: give one"
    return f"{where}: {problem['msg'][0].lower()}{problem['msg'][1:]}, got {problem['input']!r}"


@dataclass
class Task:
    """All that a run needs, made from its description."""

    run: Run
    data: datasets.Dataset
    split: Split
    student: nn.Module
    batches: Batches

    def teacher(self) -> nn.Module | None:
        """A copy of the student, as it is now, that no optimizer ever sees."""
        return copy.deepcopy(self.student).requires_grad_(False) if self.run.made.teacher_decay is not None else None


def prepare(run: Run, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Task:
    data = datasets.load(run.dataset, seed=run.seed)
    parts = split(
        data.train_y,
        labeled=run.labeled,
        imbalance=run.imbalance,
        unlabeled=run.unlabeled,
        unlabeled_total=run.unlabeled_total,
        validation_per_class=run.validation_per_class,
        seed=run.seed,
        n_classes=data.n_classes,
    )
    weights = torch.Generator().manual_seed(stream(run.seed, "init"))
    student = networks.build(run.network, data.train_x.shape[1:], data.n_classes, weights)
    return Task(run, data, parts, student.to(device, dtype), _batches(run, data, parts, dtype, device))


def _batches(run: Run, data: datasets.Dataset, parts: Split, dtype: torch.dtype, device: torch.device | str) -> Batches:
    made = run.made
    constants: dict[str, Tensor] = {}
    if made.scl is not None:
        constants["suppression"] = losses.suppression_weights(parts.labeled_counts, made.scl.beta, made.scl.form)
    if run.reweight in REWEIGHTS:
        constants["class_weights"] = REWEIGHTS[run.reweight](parts.labeled_counts)
    return Batches(
        x=torch.from_numpy(data.train_x).to(device, dtype),
        labels=torch.from_numpy(data.train_y).to(device),
        labeled=parts.labeled,
        unlabeled=parts.unlabeled,
        labeled_batch=run.labeled_batch,
        unlabeled_batch=run.unlabeled_batch,
        seed=run.seed,
        view=Views(noise=run.noise),
        second_view=made.base.needs_second_view,
        draws=made.draws,
        mix_alpha=getattr(made.base, "alpha", 1.0),
        ramp=run.ramped,
        constants={name: value.to(device, dtype) for name, value in constants.items()},
    )


REWEIGHTS: dict[str, Callable[[npt.NDArray[np.int64]], Tensor]] = {
    "in": losses.inverse_weights,
    "cb": losses.class_balanced_weights,
}


def execute(run: Run, folder: str | Path | None = None, progress: Progress | None = None) -> Result:
    """Train and evaluate one run. With a folder, files are written there, and a run that is done is not done again."""
    folder = None if folder is None else Path(folder)
    if (done := _begin(run, folder)) is not None:
        return done
    started = time.perf_counter()
    task = prepare(run)
    teacher = task.teacher()
    step = Step(run.made, run.reweight, task.student, teacher)
    optimizer = sgd(task.student.parameters(), run.learning_rate, run.momentum, run.weight_decay)
    learner = EagerLearner(step, list(task.student.parameters()))
    average = _average(run, task.student.parameters(), teacher.parameters() if teacher else ())
    taken = train(learner, optimizer, task.batches, run.rate, range(1, run.steps + 1), average)
    curve, diverged_at = _follow(taken, 1, progress)
    seconds = time.perf_counter() - started
    return _finish(task, teacher, int(diverged_at[0]), [(stretch, None) for stretch in curve], seconds, folder)


def execute_seeds(
    runs: Sequence[Run],
    folders: Sequence[str | Path | None] | None = None,
    progress: Progress | None = None,
    *,
    compiled: bool = False,
) -> list[Result]:
    """Train runs that differ in nothing but their seed at once, and give their results in order.

    A result is the same however many are trained together, to the bit on one thread. So those that are done already,
    in folders as `execute` has them, are left out.
    """
    if len({records.canonical({**run.model_dump(), "seed": 0}) for run in runs}) > 1:
        raise ValueError("runs trained at once may differ in their seed only: train the others on their own")
    places = [None if folder is None else Path(folder) for folder in folders or [None] * len(runs)]
    if len(places) != len(runs):
        raise ValueError(f"expected a folder for each of {len(runs)} runs, got {len(places)}")
    done = [_begin(run, folder) for run, folder in zip(runs, places, strict=True)]
    waiting = [place for place, result in enumerate(done) if result is None]
    if not waiting:
        return [result for result in done if result is not None]
    trained = iter(_train_seeds([runs[i] for i in waiting], [places[i] for i in waiting], progress, compiled))
    return [next(trained) if result is None else result for result in done]


def _train_seeds(
    runs: Sequence[Run], folders: Sequence[Path | None], progress: Progress | None, compiled: bool
) -> list[Result]:
    started = time.perf_counter()
    first = runs[0]
    tasks = [prepare(run) for run in runs]
    students = [task.student for task in tasks]
    teachers = [task.teacher() for task in tasks]
    seeds = ManySeeds(first.made, first.reweight, students, compiled=compiled)
    optimizer = sgd(seeds.student.values(), first.learning_rate, first.momentum, first.weight_decay)
    average = _average(first, seeds.student.values(), seeds.teacher.values())
    batches = StackedBatches([task.batches for task in tasks])
    taken = train(seeds, optimizer, batches, first.rate, range(1, first.steps + 1), average)
    curve, diverged_at = _follow(taken, len(runs), progress)
    seeds.write_back(students, seeds.student)
    if seeds.teacher:
        seeds.write_back([teacher for teacher in teachers if teacher is not None], seeds.teacher)
    seconds = (time.perf_counter() - started) / len(runs)
    return [
        _finish(task, teacher, int(step), [(c, place) for c in curve], seconds, folder)
        for place, (task, teacher, step, folder) in enumerate(zip(tasks, teachers, diverged_at, folders, strict=True))
    ]


def _begin(run: Run, folder: Path | None) -> Result | None:
    """The result, if there is one; else the description is written, and a folder that cannot be written is found out
    before training and not after it."""
    if folder is None:
        return None
    done = records.read_result(folder)
    if done is None:
        with records.readable_errors(folder):
            records.write_json(folder / "run.json", run.model_dump())
    return done


def _average(run: Run, student: Iterable[Tensor], teacher: Iterable[Tensor]) -> Average | None:
    decay = run.made.teacher_decay
    return None if decay is None else Average(teacher, student, decay)


def _follow(taken: Any, seeds: int, progress: Progress | None) -> tuple[list[Curve], npt.NDArray[np.int64]]:
    """Take the steps; for each seed the step at which it diverged, else 0. When all have, the rest is not trained."""
    seen: list[Curve] = []
    diverged_at = np.zeros(seeds, dtype=np.int64)
    for curve in curves(taken):
        seen.append(curve)
        diverged_at = np.where(diverged_at == 0, first_not_finite(curve), diverged_at)
        if progress is not None:
            progress(len(curve.steps))
        if diverged_at.all():
            break
    return seen, diverged_at


def _finish(
    task: Task,
    teacher: nn.Module | None,
    diverged_at: int,
    curve: Sequence[tuple[Curve, int | None]],
    seconds: float,
    folder: Path | None,
) -> Result:
    run = task.run
    trained = [network for network in (task.student, teacher) if network is not None]
    if not diverged_at and not all(all_finite(network) and speaks(network, task) for network in trained):
        diverged_at = run.steps  # the last step left a network that says nothing
    result: Result = {
        "run": run.model_dump(),
        "status": "diverged" if diverged_at else "done",
        "diverged_at": diverged_at or None,
        "student": None if diverged_at else evaluate(task.student, task),
        "teacher": None if diverged_at or teacher is None else evaluate(teacher, task),
        "labeled_counts": task.split.labeled_counts.tolist(),
        "unlabeled_counts": task.split.unlabeled_counts.tolist(),
        "steps": run.steps,
        "seconds": round(seconds, 3),
        "versions": versions(),
        "hardware": hardware(),
    }
    if folder is not None:
        with records.readable_errors(folder):
            _write(folder, task, teacher, curve, result)
    return result


def _write(
    folder: Path, task: Task, teacher: nn.Module | None, curve: Sequence[tuple[Curve, int | None]], result: Result
) -> None:
    steps = records.CurveFile(folder / "steps.csv")
    for stretch, place in curve:
        if stretch.steps[0] <= (result["diverged_at"] or task.run.steps):  # other seeds may have gone on
            steps.append(stretch, place)
    steps.write()
    if result["status"] == "done":
        named = {"student": task.student, "teacher": teacher}
        weights = {f"{who}/{n}": p.numpy() for who, net in named.items() if net for n, p in net.state_dict().items()}
        records.write_arrays(folder / "weights.npz", weights)
        if task.data.train_x.shape[1:] == (2,):
            records.write_arrays(folder / "boundary.npz", boundary(task.student, task))
    records.write_json(folder / "result.json", result)


@torch.no_grad()
def probabilities(network: nn.Module, x: Tensor) -> npt.NDArray[np.float32]:
    """What the network predicts, in evaluation mode, for any number of samples."""
    training = network.training
    network.eval()
    try:
        parts = [losses.probabilities(network(part)) for part in torch.split(x, EVALUATED_AT_ONCE)]
    finally:
        network.train(training)
    return torch.cat(parts).float().cpu().numpy()


def tested(network: nn.Module, task: Task) -> npt.NDArray[np.float32]:
    """What the network predicts for the test set."""
    return probabilities(network, torch.from_numpy(task.data.test_x).to(task.batches.x))


def speaks(network: nn.Module, task: Task) -> bool:
    """Whether its predictions are numbers: finite weights can be so large that they are not."""
    return bool(np.isfinite(tested(network, task)).all())


def evaluate(network: nn.Module, task: Task) -> dict[str, Any]:
    return metrics.evaluate(tested(network, task), task.data.test_y, task.split.labeled_counts)


def boundary(network: nn.Module, task: Task) -> dict[str, npt.NDArray[Any]]:
    """The most confident class and its probability over the plane, and the points that were trained on."""
    points, labels, parts = task.data.train_x, task.data.train_y, task.split
    low, high = points.min(0) - 0.3, points.max(0) + 0.3
    x, y = (np.linspace(low[d], high[d], GRID, dtype=np.float32) for d in (0, 1))
    plane = torch.from_numpy(np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)).to(task.batches.x)
    predicted = probabilities(network, plane)
    return {
        "x": x,
        "y": y,
        "probability": predicted.max(1).reshape(GRID, GRID).astype(np.float16),
        "winner": predicted.argmax(1).reshape(GRID, GRID).astype(np.uint8),
        "labeled_points": points[parts.labeled],
        "labeled_classes": labels[parts.labeled],
        "unlabeled_points": points[parts.unlabeled],
        "unlabeled_classes": labels[parts.unlabeled],
    }


def versions() -> dict[str, str]:
    return {
        "cissl": cissl.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def hardware() -> str:
    """The processor and what may be used of it."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        name = named[0] if named else name
    return f"{name}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
