"""The batch of every step, as a function of (arrays, split, seed, step): samples, views and all random draws.

Nothing is remembered from step to step, so training goes on after a restart from the step number alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cissl.methods import Batch
from cissl.randomness import stream
from cissl.samples import Samples
from cissl.views import View

# Steps drawn at once. Part of the random streams' definition: another number is another run.
STEPS_PER_DRAW_OF_VECTORS, STEPS_PER_DRAW_OF_IMAGES = 100, 1
PERMUTED_AT_ONCE = 1024  # samples; small sets are permuted many times per generator. Also part of the definition.


@runtime_checkable
class Steps(Protocol):
    def step(self, step: int) -> Mapping[str, object]:
        """The batch of a step, counted from 1."""


@dataclass
class Shuffled:
    """The endless concatenation of random permutations of `indices`."""

    indices: npt.NDArray[np.int64]
    seed: int
    name: str
    _chunk: tuple[int, npt.NDArray[np.int64]] | None = None

    def take(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        epochs = max(1, PERMUTED_AT_ONCE // len(self.indices))
        size = epochs * len(self.indices)
        chunks = range(start // size, (stop - 1) // size + 1)
        joined = np.concatenate([self._permuted(chunk, epochs) for chunk in chunks])
        return joined[start - chunks[0] * size : stop - chunks[0] * size]

    def _permuted(self, chunk: int, epochs: int) -> npt.NDArray[np.int64]:
        if self._chunk is None or self._chunk[0] != chunk:
            generator = np.random.default_rng(stream(self.seed, self.name, chunk))
            self._chunk = chunk, generator.permuted(np.tile(self.indices, (epochs, 1)), axis=1).ravel()
        return self._chunk[1]


@dataclass
class Batches:
    """Batches of one run. `shard` = (rank, processes) gives one process's share of each global batch."""

    x: Float[Tensor, "n ..."] | Samples
    labels: Int[Tensor, " n"]
    labeled: npt.NDArray[np.int64]
    unlabeled: npt.NDArray[np.int64]
    labeled_batch: int
    unlabeled_batch: int  # 0: the method uses no unlabeled samples
    seed: int
    view: View
    second_view: bool = False
    draws: Sequence[str] = ()
    mix_alpha: float = 1.0
    ramp: Callable[[int], float] = lambda step: 1.0
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    shard: tuple[int, int] = (0, 1)
    _block: tuple[int, dict[str, Tensor]] | None = None

    def __post_init__(self) -> None:
        self.steps_per_draw = STEPS_PER_DRAW_OF_VECTORS if self.x.ndim == 2 else STEPS_PER_DRAW_OF_IMAGES
        self.orders = {
            "labeled": Shuffled(self.labeled, self.seed, "batches/labeled"),
            "unlabeled": Shuffled(self.unlabeled, self.seed, "batches/unlabeled"),
        }
        self.sizes = {"labeled": self.labeled_batch, "unlabeled": self.unlabeled_batch}
        for name, indices in (("labeled", self.labeled), ("unlabeled", self.unlabeled)):
            if self.sizes[name] and len(indices) == 0:
                raise ValueError(f"the run trains on {name} samples and there are none: give some, or another method")
            if self.sizes[name] % self.shard[1]:
                raise ValueError(
                    f"{self.sizes[name]} {name} samples a batch cannot be shared by {self.shard[1]} processes"
                )

    def step(self, step: int) -> Batch:
        number, place = divmod(step - 1, self.steps_per_draw)
        if self._block is None or self._block[0] != number:
            self._block = number, self.block(number)
        return cast(Batch, {name: drawn[place] for name, drawn in self._block[1].items()} | dict(self.constants))

    def block(self, number: int) -> dict[str, Tensor]:
        """The batches of `steps_per_draw` steps, stacked."""
        rows: dict[str, list[Tensor]] = {"x": [], "x_again": []}
        drawn: dict[str, Tensor] = {}
        for name in ("labeled", "unlabeled") if self.unlabeled_batch else ("labeled",):
            size = self.steps_per_draw * self.sizes[name]
            order = self.orders[name].take(number * size, (number + 1) * size)
            chosen = torch.from_numpy(order).to(self.x.device)
            if name == "labeled":
                drawn["labels"] = self._mine(self._by_step(self.labels[chosen]))
            samples = self.x[chosen]
            for key in ("x", "x_again") if self.second_view else ("x",):
                viewed = self.view(samples, self._generator(f"views/{key}/{name}", number))
                rows[key].append(self._mine(self._by_step(viewed)))
        drawn |= {key: channels_last(torch.cat(parts, 1)) for key, parts in rows.items() if parts}
        for draw in self.draws:
            drawn[draw] = self._draw(draw, number)
        first = number * self.steps_per_draw + 1
        ramp = [self.ramp(step) for step in range(first, first + self.steps_per_draw)]
        drawn["ramp"] = torch.tensor(ramp, dtype=self.x.dtype).to(self.x.device, non_blocking=True)
        return drawn

    def _draw(self, draw: str, number: int) -> Tensor:
        """What methods may ask for, by the name of its place in the batch."""
        steps, n, u = self.steps_per_draw, self.labeled_batch, self.unlabeled_batch
        name, device, dtype = f"method/{draw}", self.x.device, self.x.dtype
        if draw == "share":
            rng = np.random.default_rng(stream(self.seed, name, number))
            return torch.from_numpy(rng.beta(self.mix_alpha, self.mix_alpha, (steps, 2))).to(device, dtype)
        generator = self._generator(name, number)
        if draw == "direction":
            return self._mine(
                torch.randn((steps, u, *self.x.shape[1:]), generator=generator, device=device, dtype=dtype)
            )
        # Sorting random keys permutes. Each part is shared out on its own, so that a process permutes its own samples.
        keys = torch.rand((steps, n + u), generator=generator, device=device)
        labeled, unlabeled = (self._mine(part) for part in torch.split(keys, [n, u], 1))
        if draw == "partner":
            return torch.cat([labeled.argsort(1), labeled.shape[1] + unlabeled.argsort(1)], 1)
        if draw == "pairs":
            return torch.cat([labeled, unlabeled], 1).argsort(1)
        raise ValueError(f"a method asks for the draw {draw!r}, which batches do not know")

    def _by_step(self, x: Tensor) -> Tensor:
        return x.view(self.steps_per_draw, -1, *x.shape[1:])

    def _mine(self, x: Tensor) -> Tensor:
        rank, processes = self.shard
        return x if processes == 1 else x[:, rank::processes]

    def _generator(self, name: str, number: int) -> Generator:
        return Generator(self.x.device).manual_seed(stream(self.seed, name, number))


def channels_last(x: Float[Tensor, "steps n ..."]) -> Float[Tensor, "steps n ..."]:
    """Images as convolutions like them best, vectors as they are."""
    if x.ndim != 5:
        return x
    flat = x.flatten(0, 1).contiguous(memory_format=torch.channels_last)
    return flat.view(x.shape)


class StackedBatches:
    """The batches of many runs that differ in their seed, along a new first dimension: for `many_seeds`."""

    def __init__(self, runs: Sequence[Batches]) -> None:
        self.runs, self.steps_per_draw = runs, runs[0].steps_per_draw
        self.constants = _stacked([run.constants for run in runs], 0)
        self._block: tuple[int, dict[str, Tensor]] | None = None

    def step(self, step: int) -> Batch:
        number, place = divmod(step - 1, self.steps_per_draw)
        if self._block is None or self._block[0] != number:
            self._block = number, _stacked([run.block(number) for run in self.runs], 1)
        return cast(Batch, {name: drawn[place] for name, drawn in self._block[1].items()} | self.constants)


def _stacked(parts: Sequence[Mapping[str, Any]], dim: int) -> dict[str, Tensor]:
    return {name: torch.stack([part[name] for part in parts], dim) for name in parts[0]}
