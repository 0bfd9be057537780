"""From a network's outputs to detections: one box for each object, the others of the same class dropped."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cissl.detection.boxes import decode, iou
from cissl.losses import probabilities


class Detections(NamedTuple):
    """What was found in one image, by falling score; a class is an index from 0, background is none."""

    boxes: Float[Tensor, "d 4"]  # corners, inside the image
    scores: Float[Tensor, " d"]
    classes: Int[Tensor, " d"]


def nms(boxes: Float[Tensor, "d 4"], scores: Float[Tensor, " d"], overlap: float = 0.45) -> Int[Tensor, " kept"]:
    """The boxes (corners) that no kept one of a higher score overlaps by more than that, by falling score."""
    order = scores.argsort(dim=0, descending=True, stable=True)
    return order[batched_nms(boxes[order], overlap)]


def batched_nms(boxes: Float[Tensor, "*g d 4"], overlap: float = 0.45) -> Bool[Tensor, "*g d"]:
    """Which boxes of each group stay; in a group they lie by falling score. Groups know nothing of each other.

    Instead of going from box to box, all are judged at once by who is thought to stay, again until nothing changes.
    After k rounds the first k boxes of a group are judged rightly, since only earlier ones matter; so what does not
    change any more is what going from box to box would give. Few rounds do: as many as boxes drop one another in a row.
    """
    drops = (iou(boxes, boxes) > overlap).triu(1).to(boxes.dtype)  # row: who drops, column: who is dropped
    kept = boxes.new_ones(boxes.shape[:-1])
    while True:
        judged = ((kept[..., None, :] @ drops)[..., 0, :] == 0).to(kept.dtype)
        if judged.equal(kept):
            return kept.bool()
        kept = judged


@torch.no_grad()
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
    images, _, classes = class_logits.shape
    objects = probabilities(class_logits.flatten(0, 1)).view_as(class_logits)[..., 1:].mT
    scores, places = objects.topk(min(per_class, len(priors)))  # of each image and class, by falling score
    places = places.flatten(1)[..., None].expand(-1, -1, 4)
    corners = decode(offsets.gather(1, places), priors.expand(images, -1, -1).gather(1, places)).clamp(0, 1)
    corners = corners.view(*scores.shape, 4)
    found = scores > score
    kept = batched_nms(corners * found[..., None], overlap) & found  # without area a box drops none
    best, chosen = scores.where(kept, 0).flatten(1).topk(min(per_image, scores.shape[1] * scores.shape[2]))
    corners = corners.flatten(1, 2).gather(1, chosen[..., None].expand(-1, -1, 4))
    of_class = torch.arange(classes - 1, device=chosen.device).repeat_interleave(scores.shape[2])[chosen]
    return [
        Detections(corners[i, :n], best[i, :n], of_class[i, :n])
        for i, n in enumerate(kept.flatten(1).sum(1).clamp(max=best.shape[1]).tolist())
    ]
