"""SSD300 on VGG16, and a light network of the same interface for CPUs.

A detector is called as `network(images)` with RGB images from 0 to 255 of `network.size` pixels a side, and gives
class logits (background first) and offsets of each of `network.priors`. Every initial weight is drawn from the
generator given.
"""

from pathlib import Path

from jaxtyping import Float, Int
from torch import Generator, Tensor, nn


class SSD(nn.Module):
    """What every detector has: a body that makes feature maps, and on each of them two heads."""

    size: int  # of an image's side, in pixels
    classes: int  # of objects, without background
    priors: Float[Tensor, "p 4"]  # centres
    mirror: Int[Tensor, " p"]  # each prior's partner in the mirrored image

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> tuple[Float[Tensor, "n p k"], Float[Tensor, "n p 4"]]:
        """Class logits, background first, and offsets of every prior."""
        raise NotImplementedError


def ssd300(classes: int = 20, generator: Generator | None = None) -> SSD:
    """SSD300 on VGG16; 26.3 million parameters for VOC's 20 classes."""
    raise NotImplementedError


def small(classes: int, generator: Generator | None = None, size: int = 96) -> SSD:
    """A light detector for CPUs: fewer than half a million parameters; `size` is any multiple of 32 from 96."""
    raise NotImplementedError


BACKBONES = ("vgg16", "small")


def build(backbone: str, classes: int, generator: Generator | None = None) -> SSD:
    """The detector with that backbone."""
    raise NotImplementedError


def load_backbone(network: SSD, path: Path) -> None:
    """Put VGG16's published weights, in either of the two common layouts, into an SSD300."""
    raise NotImplementedError
