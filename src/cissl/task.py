"""From a run's description to what it trains with: arrays, split, network, batches, and what is measured of it."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from cissl import datasets, losses, metrics, networks, preprocessing
from cissl.batches import Batches
from cissl.objective import Step
from cissl.protocol import Split, split
from cissl.randomness import stream
from cissl.run import Run, Training
from cissl.views import Views

Device = torch.device | str
EVALUATED_AT_ONCE = 250  # samples
GRID = 200  # points of a decision boundary's picture, each way
REWEIGHTS: dict[str, Callable[[npt.NDArray[np.int64]], Tensor]] = {
    "in": losses.inverse_weights,
    "cb": losses.class_balanced_weights,
}


@dataclass
class Task:
    """All that a run on samples with one label each needs, made from its description."""

    run: Training
    data: datasets.Dataset
    split: Split
    student: nn.Module
    batches: Batches
    samples: dict[str, tuple[Tensor, npt.NDArray[np.int64]]]  # "validation" and "test", preprocessed

    watched = ("error", "balanced_error")  # of the validation samples; the lowest of the first selects

    @property
    def teacher_decay(self) -> float | None:
        return self.run.made.teacher_decay

    @property
    def validates(self) -> bool:
        return "validation" in self.samples and self.run.validations > 0

    def teacher(self) -> nn.Module | None:
        """A copy of the student, as it is now, that no optimizer ever sees."""
        return copy.deepcopy(self.student).requires_grad_(False) if self.teacher_decay is not None else None

    def step(self, teacher: nn.Module | None) -> nn.Module:
        """The step module: its forward(batch) is the objective."""
        return Step(self.run.made, self.run.reweight, self.student, teacher)

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
        return {"boundary.npz": boundary(self)} if self.data.train_x.shape[1:] == (2,) else {}


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
    batches = Batches(
        x=ready(data.train_x[taking_part]),
        labels=torch.from_numpy(data.train_y[taking_part]).to(device),
        labeled=np.arange(len(parts.labeled)),
        unlabeled=np.arange(len(parts.labeled), len(taking_part)),
        labeled_batch=run.labeled_batch,
        unlabeled_batch=run.unlabeled_batch,
        seed=run.seed,
        view=Views(flip=run.flip, crop=run.crop, noise=run.noise),
        second_view=run.made.base.needs_second_view,
        draws=run.made.draws,
        mix_alpha=run.made.options.get("alpha", 1.0),
        ramp=run.ramped,
        constants={name: value.to(device, dtype) for name, value in class_weights(run, parts).items()},
        shard=shard,
    )
    weights = torch.Generator().manual_seed(stream(run.seed, "init"))
    student = networks.build(run.network, data.train_x.shape[1:], data.n_classes, weights).to(device, dtype)
    if data.train_x.ndim == 4:
        student = student.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    samples = {"test": (ready(data.test_x), data.test_y)}
    if len(parts.validation):
        samples["validation"] = (ready(data.train_x[parts.validation]), data.train_y[parts.validation])
    return Task(run, data, parts, student, batches, samples)


def class_weights(run: Training, parts: Split) -> dict[str, Tensor]:
    """What each batch carries of the labeled counts: the suppression and the weights of the labeled loss."""
    weights: dict[str, Tensor] = {}
    if run.made.scl is not None:
        weights["suppression"] = losses.suppression_weights(parts.labeled_counts, run.made.scl.beta, run.made.scl.form)
    if run.reweight in REWEIGHTS:
        weights["class_weights"] = REWEIGHTS[run.reweight](parts.labeled_counts)
    return weights


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(training)


@torch.no_grad()
def probabilities(network: nn.Module, x: Tensor) -> npt.NDArray[np.float32]:
    """What the network predicts, in evaluation mode, for any number of samples."""
    with evaluating(network):
        parts = [losses.probabilities(network(part)) for part in torch.split(x, EVALUATED_AT_ONCE)]
    return torch.cat(parts).float().cpu().numpy()


def boundary(task: Task) -> dict[str, npt.NDArray[Any]]:
    """The most confident class and its probability over the plane, and the points that were trained on."""
    points, labels, parts = task.data.train_x, task.data.train_y, task.split
    low, high = points.min(0) - 0.3, points.max(0) + 0.3
    x, y = (np.linspace(low[d], high[d], GRID, dtype=np.float32) for d in (0, 1))
    plane = torch.from_numpy(np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)).to(task.batches.x)
    predicted = probabilities(task.student, plane)
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
