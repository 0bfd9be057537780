"""From a run's description to what it trains with: arrays, split, network, batches, and what is measured of it."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cissl import datasets, losses, metrics, networks, preprocessing
from cissl.batches import Batches
from cissl.objective import Step
from cissl.protocol import Split, split
from cissl.randomness import stream
from cissl.run import OwnData, Run, Training
from cissl.samples import Samples
from cissl.views import Views

Device = torch.device | str
EVALUATED_AT_ONCE = 250  # samples
GRID = 200  # points of a decision boundary's picture, each way
SNAPSHOT_GRID = 64  # likewise of those on the way there
REWEIGHTS: dict[str, Callable[[npt.NDArray[np.int64]], Tensor]] = {
    "in": losses.inverse_weights,
    "cb": losses.class_balanced_weights,
}


class Classification:
    """What the tasks of samples with one label each have in common."""

    run: Training
    student: nn.Module

    @property
    def teacher_decay(self) -> float | None:
        return self.run.made.teacher_decay

    def teacher(self) -> nn.Module | None:
        """A copy of the student, as it is now, that no optimizer ever sees."""
        return copy.deepcopy(self.student).requires_grad_(False) if self.teacher_decay is not None else None

    def step(self, teacher: nn.Module | None) -> nn.Module:
        """The step module: its forward(batch) is the objective."""
        return Step(self.run.made, self.run.reweight, self.student, teacher)


@dataclass
class Task(Classification):
    """All that a run on samples with one label each needs, made from its description."""

    run: Training
    data: datasets.Dataset
    split: Split
    student: nn.Module
    batches: Batches
    samples: dict[str, tuple[Tensor, npt.NDArray[np.int64]]]  # "validation" and "test", preprocessed

    watched = ("error", "balanced_error")  # of the validation samples; the lowest of the first selects

    @property
    def validates(self) -> bool:
        return "validation" in self.samples and self.run.validations > 0

    def measure(self, network: nn.Module, part: str) -> dict[str, Any] | None:
        """Everything that is reported of a network on "validation" or "test"; None where it says no numbers."""
        x, y = self.samples[part]
        said = probabilities(network, x)
        return metrics.evaluate(said, y, self.split.labeled_counts) if np.isfinite(said).all() else None

    def facts(self) -> dict[str, Any]:
        """What the result says of the data."""
        return {
            "labeled_counts": self.split.labeled_counts.tolist(),
            "unlabeled_counts": self.split.unlabeled_counts.tolist(),
        }

    def pictures(self) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """Arrays to be drawn of the trained student, by the name of their file."""
        return {"boundary.npz": boundary(self)} if self.is_plane else {}

    @property
    def is_plane(self) -> bool:
        """Whether the samples are points that can be drawn."""
        return self.data.train_x.shape[1:] == (2,)

    def snapshot(self) -> npt.NDArray[np.uint8] | None:
        """The student's confidence over the plane as it is now, in 255ths; None without a plane, or without numbers."""
        if not self.is_plane:
            return None
        confidence = over_the_plane(self, SNAPSHOT_GRID)[2].max(-1)
        return (255 * confidence).round().astype(np.uint8) if np.isfinite(confidence).all() else None

    def film(self, steps: Sequence[int], snapshots: Sequence[npt.NDArray[np.uint8]]) -> dict[str, npt.NDArray[Any]]:
        """The snapshots of those steps as the arrays of boundary-steps.npz."""
        x, y, _ = over_the_plane(self, SNAPSHOT_GRID)
        return {"x": x, "y": y, "steps": np.array(steps), "confidence": np.stack(snapshots), **trained_on(self)}


def prepare(
    run: Run,
    dtype: torch.dtype = torch.float32,
    device: Device = "cpu",
    data_dir: Path | None = None,
    shard: tuple[int, int] = (0, 1),
) -> Task:
    """The task of a run on a data set known by name."""
    data = datasets.load(run.dataset, data_dir, run.seed)
    parts = split(
        data.train_y,
        labeled=run.labeled,
        imbalance=run.imbalance,
        unlabeled=run.unlabeled,
        unlabeled_total=run.unlabeled_total,
        validation_per_class=run.validation_per_class,
        on_shortage=run.on_shortage,
        seed=run.seed,
        n_classes=data.n_classes,
    )
    cache = datasets.data_folder(data_dir) / "cache"
    return assemble(run, data, parts, preprocessing.fit(run.preprocessing, data.train_x, cache), dtype, device, shard)


def assemble(
    run: Training,
    data: datasets.Dataset,
    parts: Split,
    fitted: preprocessing.Preprocessing,
    dtype: torch.dtype = torch.float32,
    device: Device = "cpu",
    shard: tuple[int, int] = (0, 1),
) -> Task:
    """The task of a run on any data, split in any way."""

    def ready(x: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(fitted(x)).to(device, dtype)

    # Only what takes part is preprocessed: first the labeled, then the unlabeled samples.
    taking_part = np.concatenate([parts.labeled, parts.unlabeled])
    x, labels = ready(data.train_x[taking_part]), torch.from_numpy(data.train_y[taking_part]).to(device)
    labeled, unlabeled = np.split(np.arange(len(taking_part)), [len(parts.labeled)])
    constants = class_weights(run, parts.labeled_counts)
    batches = batches_of(run, x, labels, labeled, unlabeled, constants, shard)
    weights = torch.Generator().manual_seed(stream(run.seed, "init"))
    student = networks.build(run.network, data.train_x.shape[1:], data.n_classes, weights).to(device, dtype)
    if data.train_x.ndim == 4:
        student = student.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    samples = {"test": (ready(data.test_x), data.test_y)}
    if len(parts.validation):
        samples["validation"] = (ready(data.train_x[parts.validation]), data.train_y[parts.validation])
    return Task(run, data, parts, student, batches, samples)


@dataclass
class OwnTask(Classification):
    """The same for samples that have no name and no test set, some of them without a label (−1).

    `labels` holds one for each sample; `validation` are the places of labeled samples that are not trained on.
    """

    run: OwnData
    x: Tensor | Samples
    labels: npt.NDArray[np.int64]
    validation: npt.NDArray[np.int64]
    labeled_counts: npt.NDArray[np.int64]  # of those that are trained on
    student: nn.Module
    batches: Batches

    watched = ("balanced_error", "error")  # the rare classes count as much as the others

    @property
    def validates(self) -> bool:
        return len(self.validation) > 0 and self.run.validations > 0

    def measure(self, network: nn.Module, part: str) -> dict[str, Any] | None:
        """There is nothing to test on: of "test" is only found out whether the network says numbers."""
        which = self.validation if part == "validation" else np.arange(min(len(self.x), EVALUATED_AT_ONCE))
        said = probabilities(network, self.x[torch.from_numpy(which).to(self.x.device)])
        if not np.isfinite(said).all():
            return None
        return metrics.evaluate(said, self.labels[which], self.labeled_counts) if part == "validation" else {}

    def facts(self) -> dict[str, Any]:
        """What the result says of the data."""
        unlabeled = len(self.batches.unlabeled)
        return {"labeled_counts": self.labeled_counts.tolist(), "unlabeled": unlabeled}

    def pictures(self) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """None."""
        return {}


def own_task(
    run: OwnData,
    x: Tensor | Samples,
    labels: npt.NDArray[np.int64],
    n_classes: int,
    student: nn.Module,
    shard: tuple[int, int] = (0, 1),
) -> OwnTask:
    """The task of samples that are preprocessed and on their device, −1 for those without a label.

    Where no sample is unlabeled, the labeled ones serve as unlabeled ones too: consistency then is a regulariser.
    """
    training, validation = held_out(labels, run.validation_fraction, stream(run.data_seed, "split"))
    unlabeled = np.flatnonzero(labels < 0)
    labeled_counts = np.bincount(labels[training], minlength=n_classes)
    constants = class_weights(run, labeled_counts, run.class_counts)
    student = student.to(device=x.device, dtype=x.dtype)
    if x.ndim == 4:
        student = student.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batches = batches_of(
        run,
        x,
        torch.from_numpy(labels).to(x.device),
        training,
        unlabeled if len(unlabeled) else training,
        constants,
        shard,
    )
    return OwnTask(run, x, labels, validation, labeled_counts, student, batches)


def held_out(
    labels: npt.NDArray[np.int64], fraction: float, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Places of the labeled samples to train on, and of those to validate on: of each class the fraction, not none."""
    rng = np.random.default_rng(seed)
    validation = []
    for label in np.unique(labels[labels >= 0]) if fraction else ():
        places = rng.permutation(np.flatnonzero(labels == label))
        validation.append(places[: max(1, min(len(places) - 1, round(fraction * len(places))))])
    chosen = np.sort(np.concatenate(validation)) if validation else np.zeros(0, np.int64)
    return np.setdiff1d(np.flatnonzero(labels >= 0), chosen), chosen


def batches_of(
    run: Training,
    x: Float[Tensor, "n ..."] | Samples,
    labels: Int[Tensor, " n"],
    labeled: npt.NDArray[np.int64],
    unlabeled: npt.NDArray[np.int64],
    constants: dict[str, Tensor],
    shard: tuple[int, int],
) -> Batches:
    """The run's batches of these samples, which are preprocessed and on their device."""
    return Batches(
        x=x,
        labels=labels,
        labeled=labeled,
        unlabeled=unlabeled,
        labeled_batch=run.labeled_batch,
        unlabeled_batch=run.unlabeled_batch,
        seed=run.seed,
        view=Views(flip=run.flip, crop=run.crop, noise=run.noise),
        second_view=run.made.base.needs_second_view,
        draws=run.made.draws,
        mix_alpha=run.made.options.get("alpha", 1.0),
        ramp=run.ramped,
        constants={name: value.to(x.device, x.dtype) for name, value in constants.items()},
        shard=shard,
    )


def class_weights(
    run: Training, labeled_counts: npt.NDArray[np.int64], believed: list[int] | None = None
) -> dict[str, Tensor]:
    """What each batch carries of the labeled counts: the suppression, of other counts where others are believed to be
    those of the unlabeled samples, and the weights of the labeled loss."""
    weights: dict[str, Tensor] = {}
    if run.made.scl is not None:
        weights["suppression"] = losses.suppression_weights(
            believed or labeled_counts, run.made.scl.beta, run.made.scl.form
        )
    if run.reweight in REWEIGHTS:
        weights["class_weights"] = REWEIGHTS[run.reweight](labeled_counts)
    return weights


@torch.no_grad()
def probabilities(network: nn.Module, x: Tensor | Samples) -> npt.NDArray[np.float32]:
    """What the network predicts, in evaluation mode, for any number of samples."""
    with networks.evaluating(network):
        starts = range(0, len(x), EVALUATED_AT_ONCE)
        parts = [losses.probabilities(network(x[start : start + EVALUATED_AT_ONCE])) for start in starts]
    return torch.cat(parts).float().cpu().numpy()


def boundary(task: Task) -> dict[str, npt.NDArray[Any]]:
    """The most confident class and its probability over the plane, and the points that were trained on."""
    x, y, predicted = over_the_plane(task, GRID)
    return {
        "x": x,
        "y": y,
        "probability": predicted.max(-1).astype(np.float16),
        "winner": predicted.argmax(-1).astype(np.uint8),
        **trained_on(task),
    }


def over_the_plane(task: Task, grid: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """The coordinates of a grid over the data, and what the student predicts there."""
    points = task.data.train_x
    low, high = points.min(0) - 0.3, points.max(0) + 0.3
    x, y = (np.linspace(low[d], high[d], grid, dtype=np.float32) for d in (0, 1))
    plane = torch.from_numpy(np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)).to(
        task.batches.x.device, task.batches.x.dtype
    )
    return x, y, probabilities(task.student, plane).reshape(grid, grid, -1)


def trained_on(task: Task) -> dict[str, npt.NDArray[Any]]:
    points, labels, parts = task.data.train_x, task.data.train_y, task.split
    return {
        "labeled_points": points[parts.labeled],
        "labeled_classes": labels[parts.labeled],
        "unlabeled_points": points[parts.unlabeled],
        "unlabeled_classes": labels[parts.unlabeled],
    }
