"""How good detections are: VOC's average precision per class, and COCO's."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class Found(NamedTuple):
    """What a detector found in one image."""

    boxes: Float[np.ndarray, "d 4"]  # corners
    scores: Float[np.ndarray, " d"]
    classes: Int[np.ndarray, " d"]


class Truth(NamedTuple):
    """What is in it. A difficult object is neither missed nor found: what matches it does not count at all."""

    boxes: Float[np.ndarray, "m 4"]  # corners
    classes: Int[np.ndarray, " m"]
    difficult: Bool[np.ndarray, " m"]


def average_precision(
    found: Sequence[Found],
    truth: Sequence[Truth],
    classes: int,
    overlap: float = 0.5,
    points: Literal["11", "all"] = "11",
) -> Float[np.ndarray, " classes"]:
    """Average precision of each class over all images; NaN for a class without an object that counts.

    "11" is VOC2007's mean over the recalls 0, 0.1, …, 1, "all" the area under the falling envelope, as VOC from 2010.
    """
    raise NotImplementedError


def mean_average_precision(of_classes: Float[np.ndarray, " classes"]) -> float:
    """mAP: the mean over the classes that have an object; NaN if none has."""
    raise NotImplementedError


def coco_average_precision(
    found: Sequence[Found], truth: Sequence[Truth], sizes: Sequence[tuple[int, int]], classes: int
) -> dict[str, float]:
    """COCO's average precisions by faster-coco-eval (extra `detection`): "ap", "ap50", "ap75", "ap_small", … .

    `sizes` are the images' (width, height) in pixels; difficult objects are ignored as crowds are.
    """
    raise NotImplementedError
