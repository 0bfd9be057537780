"""Views: random changes of whole batches, on the batch's device, where every sample has its own draw.

A view is a pure function of (batch, generator): the same generator seed gives the same view. The generator lives on
the batch's device. Nothing loops over samples, and a batch of several runs at once is just a longer batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

View = Callable[[Tensor, Generator], Tensor]


@cache
def gaussian_noise(std: float) -> View:
    """Add normal noise to every number: 0.15 for the toy sets and for CIFAR-10 after GCN and ZCA."""
    if not std >= 0:
        raise ValueError(f"the noise's standard deviation has to be >= 0, got {std}")

    def noisy(x: Float[Tensor, "n ..."], generator: Generator) -> Float[Tensor, "n ..."]:
        return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype).mul_(std).add_(x)

    return noisy


def flip(x: Float[Tensor, "n c h w"], generator: Generator) -> Float[Tensor, "n c h w"]:
    """Mirror every image left to right with probability ½ (CIFAR-10; digits of SVHN would change their meaning)."""
    mirrored = torch.rand((len(x), 1, 1, 1), generator=generator, device=x.device) < 0.5
    column = torch.arange(x.shape[3], device=x.device)
    return x.gather(3, torch.where(mirrored, column.flip(0), column).expand(x.shape))


@cache
def crop(padding: int = 2) -> View:
    """Pad every image by reflection and cut it at its own random place: the paper's 2 for CIFAR-10 and SVHN."""
    if padding < 0:
        raise ValueError(f"the padding of a crop has to be >= 0, got {padding}")

    def cropped(x: Float[Tensor, "n c h w"], generator: Generator) -> Float[Tensor, "n c h w"]:
        n, c, height, width = x.shape
        if padding >= min(height, width):
            raise ValueError(f"reflection pads by less than the image's size: {height} x {width}, padding {padding}")
        shift = torch.randint(-padding, padding + 1, (2, n, 1), generator=generator, device=x.device)
        rows, columns = _reflected(shift[0], height), _reflected(shift[1], width)
        # One index per pixel, the same for all channels: the padded image is never made.
        pixel = (rows[:, :, None] * width + columns[:, None, :]).flatten(1)
        return x.flatten(2).gather(2, pixel[:, None].expand(n, c, -1)).view_as(x)

    return cropped


def _reflected(shift: Int[Tensor, "n 1"], size: int) -> Int[Tensor, "n size"]:
    """The places 0 … size − 1 after the shift, those outside mirrored at the border without repeating it."""
    place = (torch.arange(size, device=shift.device) + shift).abs()
    return torch.where(place >= size, 2 * (size - 1) - place, place)


@dataclass(frozen=True)
class Views:
    """Flip, then crop, then noise: CIFAR-10 is `Views(flip=True, crop=2, noise=0.15)`, SVHN is `Views(crop=2)`."""

    flip: bool = False
    crop: int = 0
    noise: float = 0.0

    def __post_init__(self) -> None:
        self.steps()  # so that a wrong number is reported here

    def steps(self) -> list[View]:
        """The views that are switched on, in their order; one that is off draws nothing."""
        steps: list[View] = [flip] if self.flip else []
        if self.crop:
            steps.append(crop(self.crop))
        if self.noise:
            steps.append(gaussian_noise(self.noise))
        return steps

    def __call__(self, x: Float[Tensor, "n ..."], generator: Generator) -> Float[Tensor, "n ..."]:
        """One view of the batch."""
        if (self.flip or self.crop) and x.ndim != 4:
            raise ValueError(f"flip and crop are for images (n, c, h, w), got a batch of shape {tuple(x.shape)}")
        for step in self.steps():
            x = step(x, generator)
        return x
