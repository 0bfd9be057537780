"""From a network's outputs to detections: one box for each object, the others of the same class dropped."""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor


class Detections(NamedTuple):
    """What was found in one image, by falling score; a class is an index from 0, background is none."""

    boxes: Float[Tensor, "d 4"]  # corners
    scores: Float[Tensor, " d"]
    classes: Int[Tensor, " d"]


def nms(boxes: Float[Tensor, "d 4"], scores: Float[Tensor, " d"], overlap: float = 0.45) -> Int[Tensor, " kept"]:
    """The boxes (corners) that no kept one of a higher score overlaps by more than that, by falling score."""
    raise NotImplementedError


def batched_nms(boxes: Float[Tensor, "*g d 4"], overlap: float = 0.45) -> Bool[Tensor, "*g d"]:
    """Which boxes of each group stay; in a group they lie by falling score. Groups know nothing of each other."""
    raise NotImplementedError


def detections(
    class_logits: Float[Tensor, "n p k"],
    offsets: Float[Tensor, "n p 4"],
    priors: Float[Tensor, "p 4"],
    score: float = 0.01,
    overlap: float = 0.45,
    per_class: int = 200,
    per_image: int = 200,
) -> list[Detections]:
    """What is found in each image: at most `per_class` boxes of a class go into NMS, `per_image` of all come out."""
    raise NotImplementedError
