"""The boxes that a detector starts from: for every cell of every feature map a few, of a size and of several shapes."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Map:
    """One feature map of `cells` x `cells`; every length is relative to the image."""

    cells: int
    step: float  # from one cell's centre to the next one's
    size: float  # of the boxes
    next_size: float  # of the next map's boxes: one square of each cell is between the two
    ratios: tuple[int, ...]  # width to height, each together with its inverse

    @property
    def shapes(self) -> list[tuple[float, float]]:
        """Width and height of a cell's boxes, in order."""
        between = math.sqrt(self.size * self.next_size)
        long = [(self.size * math.sqrt(ratio), self.size / math.sqrt(ratio)) for ratio in self.ratios]
        return [(self.size, self.size), (between, between), *(s for w, h in long for s in ((w, h), (h, w)))]


# Liu et al. 2016. The steps are those of the network's layers: cells x step exceeds the image's 300 pixels a little.
SSD300 = (
    Map(38, 8 / 300, 30 / 300, 60 / 300, (2,)),
    Map(19, 16 / 300, 60 / 300, 111 / 300, (2, 3)),
    Map(10, 32 / 300, 111 / 300, 162 / 300, (2, 3)),
    Map(5, 64 / 300, 162 / 300, 213 / 300, (2, 3)),
    Map(3, 100 / 300, 213 / 300, 264 / 300, (2,)),
    Map(1, 300 / 300, 264 / 300, 315 / 300, (2,)),
)


def priors(maps: Sequence[Map]) -> Float[Tensor, "p 4"]:
    """All boxes as centres, clipped to [0, 1], in the order of a network's outputs: map, row, column, shape."""
    boxes = [
        ((column + 0.5) * map_.step, (row + 0.5) * map_.step, width, height)
        for map_ in maps
        for row, column in itertools.product(range(map_.cells), repeat=2)
        for width, height in map_.shapes
    ]
    return torch.tensor(boxes, dtype=torch.float64).clamp(0, 1).float()


def ssd300() -> Float[Tensor, "8732 4"]:
    """SSD300's 8,732 priors."""
    return priors(SSD300)


def mirror_index(maps: Sequence[Map]) -> Int[Tensor, " p"]:
    """For each prior the one that takes its place when the image is mirrored: same map, row and shape, column reversed.

    What a network says of the mirrored image is `outputs[:, mirror_index(maps)]`, put back in place.
    """
    parts, first = [], 0
    for map_ in maps:
        count = map_.cells**2 * len(map_.shapes)
        numbers = torch.arange(first, first + count)
        parts.append(numbers.view(map_.cells, map_.cells, -1).flip(1).flatten())
        first += count
    return torch.cat(parts)
