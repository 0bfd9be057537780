"""Data sets by name, as plain arrays: images uint8 (n, c, h, w), feature vectors float32 (n, d), labels int64."""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cissl.randomness import stream

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Dataset:
    """A training and a test set; `train_y[i]` is an index into `class_names`."""

    name: str
    train_x: Array
    train_y: npt.NDArray[np.int64]
    test_x: Array
    test_y: npt.NDArray[np.int64]
    class_names: tuple[str, ...]

    @property
    def n_classes(self) -> int:
        """How many classes there are, seen in training or not."""
        return len(self.class_names)


def two_moons(seed: int) -> Dataset:
    """The paper's first toy set: 6,000 points on two half circles with noise 0.15."""
    from sklearn.datasets import make_moons

    x, y = make_moons(6000, noise=0.15, random_state=stream(seed, "data") % 2**32)
    return _toy("two-moons", x, y)


def four_spins(seed: int) -> Dataset:
    """The paper's second toy set: four spiral arms of 1,500 points."""
    rng = np.random.default_rng(stream(seed, "data"))
    arms = []
    for arm in range(4):
        r = np.array([1.0, 0.0]) + np.array([0.3, 0.1]) * rng.standard_normal((1500, 2))
        angle = 2 * np.pi * arm / 4 + 0.7 * np.exp(r[:, 0])
        cos, sin = np.cos(angle), np.sin(angle)
        # The row vector r times [[cos, -sin], [sin, cos]], each point with its own angle.
        arms.append(np.stack([r[:, 0] * cos + r[:, 1] * sin, r[:, 1] * cos - r[:, 0] * sin], axis=1))
    return _toy("four-spins", np.concatenate(arms), np.repeat(np.arange(4), 1500))


def _toy(name: str, x: Array, y: Array) -> Dataset:
    """Toy runs are evaluated on all points, those trained on included, as in the paper."""
    x, y = x.astype(np.float32), y.astype(np.int64)
    return Dataset(name, x, y, x, y, tuple(f"class {c}" for c in range(int(y.max()) + 1)))


def load(name: str, data_dir: Path | None = None, seed: int = 0) -> Dataset:
    """The data set of that name. Only the toy sets are drawn from `seed`; the others are always the same."""
    if name == "two-moons":
        return two_moons(seed)
    if name == "four-spins":
        return four_spins(seed)
    names = ("two-moons", "four-spins")
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    raise ValueError(f"unknown data set {name!r}, did you mean {near!r}? There are {', '.join(names)}")
