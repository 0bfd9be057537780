"""The batch of every step, as a function of (pictures, seed, step): which pictures, and how each is augmented."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cissl.batches import Shuffled
from cissl.detection.augment import Sample, augment, augment_lightly, unchanged
from cissl.detection.data import NO_BOXES, NO_CLASSES, Picture, Reader, relative
from cissl.randomness import stream

AHEAD = 2  # steps whose pictures are made while an accelerator is busy
MOST_THREADS = 8
Augmentation = Literal["ssd", "light", "none"]
AUGMENTATIONS: dict[str, Callable[[Sample, int, np.random.Generator], Sample]] = {
    "ssd": augment,
    "light": augment_lightly,
    "none": unchanged,
}


class PictureBatches:
    """As CSD draws them: one pass over the labeled pictures, then shuffled batches of all, of which any number are
    labeled. Without unlabeled pictures, shuffled batches of the labeled ones.

    Nothing is remembered from step to step. What objects there are in an unlabeled picture is not looked at. `shard` =
    (rank, processes) gives one process's share of each batch; `background` makes batches ahead in threads.
    """

    def __init__(
        self,
        labeled: Sequence[Picture],
        unlabeled: Sequence[Picture],
        batch: int,
        size: int,
        seed: int,
        augmentation: Augmentation = "ssd",
        weight: Callable[[int], float] = lambda step: 1.0,
        constants: Mapping[str, Tensor] | None = None,
        device: torch.device | str = "cpu",
        shard: tuple[int, int] = (0, 1),
        read: Reader | None = None,
        background: bool = False,
    ) -> None:
        rank, processes = shard
        if batch % processes:
            raise ValueError(f"{batch} pictures a batch cannot be shared by {processes} processes")
        self.pictures, self.labeled, self.batch, self.size = [*labeled, *unlabeled], len(labeled), batch, size
        self.seed, self.weight, self.constants, self.device = seed, weight, dict(constants or {}), device
        self.augment = AUGMENTATIONS[augmentation]
        self.read, self.mine = read or Reader(), range(rank, batch, processes)
        first = np.arange(self.labeled)
        self.first, self.all = Shuffled(first, seed, "batches/labeled"), Shuffled(first, seed, "batches/labeled")
        self.first_steps = 0
        if unlabeled:
            self.first_steps = -(-self.labeled // batch)
            self.all = Shuffled(np.arange(len(self.pictures)), seed, "batches/all")
        # As many places for objects as the fullest picture needs, in every batch: no shape depends on the draw.
        self.places = max(1, *(len(picture.trained_on()[1]) for picture in labeled))
        self.pool = ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) if background else None
        self.ahead: dict[int, list[Future[Sample]]] = {}

    def step(self, step: int) -> dict[str, Tensor]:
        """The batch of a step, counted from 1."""
        batch = self.collated(step, self.samples(step))
        return {name: value.to(self.device, non_blocking=True) for name, value in batch.items()} | self.constants

    def chosen(self, step: int) -> npt.NDArray[np.int64]:
        """The numbers of the step's pictures; the labeled ones come first in `pictures`."""
        order, place = (self.first, step - 1) if step <= self.first_steps else (self.all, step - 1 - self.first_steps)
        return order.take(place * self.batch, (place + 1) * self.batch)

    def samples(self, step: int) -> list[Sample]:
        if self.pool is None:
            chosen = self.chosen(step)
            return [self.sample(step, place, chosen[place]) for place in self.mine]
        for later in range(step, step + 1 + AHEAD):
            if later not in self.ahead:
                chosen = self.chosen(later)
                self.ahead[later] = [self.pool.submit(self.sample, later, place, chosen[place]) for place in self.mine]
        return [future.result() for future in self.ahead.pop(step)]

    def sample(self, step: int, place: int, number: np.int64) -> Sample:
        """One augmented picture; its draws are those of its place in the batch of that step."""
        picture = self.pictures[number]
        image = self.read(picture)
        boxes, classes = picture.trained_on() if number < self.labeled else (NO_BOXES, NO_CLASSES)
        generator = np.random.default_rng(stream(self.seed, f"views/{place}", step))
        return self.augment(Sample(image, relative(boxes, image).astype(np.float32), classes), self.size, generator)

    def collated(self, step: int, samples: Sequence[Sample]) -> dict[str, Tensor]:
        boxes = np.zeros((len(samples), self.places, 4), dtype=np.float32)
        classes = np.full((len(samples), self.places), -1)
        for place, sample in enumerate(samples):
            boxes[place, : len(sample.boxes)] = sample.boxes
            classes[place, : len(sample.classes)] = sample.classes
        chosen = self.chosen(step)
        return {
            "images": torch.from_numpy(np.stack([sample.image for sample in samples])).permute(0, 3, 1, 2),
            "boxes": torch.from_numpy(boxes),
            "classes": torch.from_numpy(classes),
            "labeled": torch.from_numpy(chosen[list(self.mine)] < self.labeled),
            "weight": torch.tensor(self.weight(step), dtype=torch.float32),
        }
