"""SSD's loss: which prior stands for which object, and how far the network's answer for it is off."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cissl.detection.boxes import encode, iou, to_corners
from cissl.losses import cross_entropy

NEGATIVES_PER_POSITIVE = 3


def match(
    boxes: Float[Tensor, "n m 4"],
    classes: Int[Tensor, "n m"],
    priors: Float[Tensor, "p 4"],
    threshold: float = 0.5,
) -> tuple[Float[Tensor, "n p 4"], Int[Tensor, "n p"]]:
    """What each prior (centres) should say: the offsets of its object (corners), and its class + 1; 0 is background.

    A prior stands for the object that it overlaps most, if that is at least the threshold; and every object claims the
    prior that overlaps it most, whatever the overlap (of two that claim the same one, the object that overlaps it more
    gets it). Class −1 is padding. An object that overlaps no prior, as one without area, claims none.
    """
    if boxes.shape[1] == 0:
        return boxes.new_zeros(len(boxes), len(priors), 4), classes.new_zeros(len(boxes), len(priors))
    overlap = iou(boxes, to_corners(priors)) * (classes >= 0)[..., None]
    best, claimed = overlap.max(2, keepdim=True)
    overlap = overlap.scatter_add(2, claimed, 2 * (best > 0).to(overlap))  # more than any overlap that is not a claim
    strength, owner = overlap.max(1)
    owners = boxes.gather(1, owner[..., None].expand(-1, -1, 4))
    return encode(owners, priors), torch.where(strength >= threshold, classes.gather(1, owner) + 1, 0)


def hard_negatives(
    loss: Float[Tensor, "n p"], positive: Bool[Tensor, "n p"], ratio: int = NEGATIVES_PER_POSITIVE
) -> Bool[Tensor, "n p"]:
    """In each image, `ratio` times as many priors as are positive: those of the largest loss that are not positive."""
    order = loss.masked_fill(positive, -torch.inf).argsort(dim=1, descending=True, stable=True)
    places = torch.arange(loss.shape[1], device=loss.device).expand_as(order)
    rank = torch.empty_like(order).scatter(1, order, places)
    return (rank < ratio * positive.sum(1, keepdim=True)) & ~positive


def multibox_loss(
    class_logits: Float[Tensor, "n p k"],
    offsets: Float[Tensor, "n p 4"],
    target_classes: Int[Tensor, "n p"],
    target_offsets: Float[Tensor, "n p 4"],
    labeled: Bool[Tensor, " n"],
) -> dict[str, Float[Tensor, ""]]:
    """The named terms "localisation" and "classification" of labeled images, each over max(positive priors, 1).

    Localisation is smooth L1 over the positive priors; classification is the cross-entropy over them and the hardest
    negatives of their image.
    """
    positive = (target_classes > 0) & labeled[:, None]
    entropy = cross_entropy(class_logits.flatten(0, 1), target_classes.flatten()).view_as(target_classes)
    negative = hard_negatives(entropy.detach(), positive)
    distance = nn.functional.smooth_l1_loss(offsets, target_offsets, reduction="none").sum(2)
    positives = positive.sum().clamp(min=1)
    return {
        "localisation": (distance * positive).sum() / positives,
        "classification": (entropy * (positive | negative)).sum() / positives,
    }
