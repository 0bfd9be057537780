"""The SSD paper's augmentation: photometric distortion, expansion, a crop that holds objects, mirror, resize.

Images are uint8 (h, w, 3), boxes are corners relative to the image, float32; everything is drawn from the generator
given, and nothing given is changed.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8


class Sample(NamedTuple):
    """One image with its objects."""

    image: UInt8[np.ndarray, "h w 3"]
    boxes: Float[np.ndarray, "m 4"]
    classes: Int[np.ndarray, " m"]


def augment(sample: Sample, size: int, generator: np.random.Generator) -> Sample:
    """A random view of size x size pixels with the objects whose centre is in it.

    Works without objects, as of an unlabeled image: then any crop will do.
    """
    raise NotImplementedError


def resize(image: UInt8[np.ndarray, "h w 3"], size: int) -> UInt8[np.ndarray, "size size 3"]:
    """The whole image at size x size pixels, as a detector sees it where nothing is augmented."""
    raise NotImplementedError
