"""Boxes, relative to the image: corners (x0, y0, x1, y1), or centres (cx, cy, w, h).

A box without area is a box like any other here: it overlaps nothing, and every number about it is finite.
"""

import torch
from jaxtyping import Float
from torch import Tensor

CENTRE_VARIANCE, SIZE_VARIANCE = 0.1, 0.2  # SSD's units: offsets of trained objects are about as large as 1
SMALLEST = 1e-5  # of a side, where a quotient or a logarithm is taken: far less than a pixel


def to_corners(boxes: Float[Tensor, "*n 4"]) -> Float[Tensor, "*n 4"]:
    """(cx, cy, w, h) -> (x0, y0, x1, y1)."""
    centre, size = boxes[..., :2], boxes[..., 2:]
    return torch.cat([centre - size / 2, centre + size / 2], -1)


def to_centres(boxes: Float[Tensor, "*n 4"]) -> Float[Tensor, "*n 4"]:
    """(x0, y0, x1, y1) -> (cx, cy, w, h)."""
    low, high = boxes[..., :2], boxes[..., 2:]
    return torch.cat([(low + high) / 2, high - low], -1)


def flip(boxes: Float[Tensor, "*n 4"]) -> Float[Tensor, "*n 4"]:
    """Where boxes, given by their corners, are in the image mirrored left to right."""
    x0, y0, x1, y1 = boxes.unbind(-1)
    return torch.stack([1 - x1, y0, 1 - x0, y1], -1)


def area(boxes: Float[Tensor, "*n 4"]) -> Float[Tensor, "*n"]:
    """Width times height of boxes given by their corners; 0 where a corner is on the wrong side of the other."""
    sides = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0)
    return sides[..., 0] * sides[..., 1]


def iou(a: Float[Tensor, "*#b n 4"], b: Float[Tensor, "*#b m 4"]) -> Float[Tensor, "*b n m"]:
    """Intersection over union of every box of `a` with every one of `b`, all given by their corners."""
    (ax0, ay0, ax1, ay1), (bx0, by0, bx1, by1) = a[..., :, None, :].unbind(-1), b[..., None, :, :].unbind(-1)
    width = (torch.minimum(ax1, bx1) - torch.maximum(ax0, bx0)).clamp(min=0)
    height = (torch.minimum(ay1, by1) - torch.maximum(ay0, by0)).clamp(min=0)
    both = width * height
    either = area(a)[..., :, None] + area(b)[..., None, :] - both
    return both / either.clamp(min=SMALLEST**2)


def encode(boxes: Float[Tensor, "*#b p 4"], priors: Float[Tensor, "*#b p 4"]) -> Float[Tensor, "*b p 4"]:
    """The offsets by which priors (centres) have to be moved to give the boxes (corners), one for each."""
    boxes = to_centres(boxes)
    moved = (boxes[..., :2] - priors[..., :2]) / (CENTRE_VARIANCE * priors[..., 2:])
    grown = (boxes[..., 2:].clamp(min=SMALLEST) / priors[..., 2:]).log() / SIZE_VARIANCE
    return torch.cat([moved, grown], -1)


def decode(offsets: Float[Tensor, "*#b p 4"], priors: Float[Tensor, "*#b p 4"]) -> Float[Tensor, "*b p 4"]:
    """The boxes (corners) that offsets make of priors (centres): `encode` the other way round."""
    centre = priors[..., :2] + offsets[..., :2] * CENTRE_VARIANCE * priors[..., 2:]
    size = priors[..., 2:] * (offsets[..., 2:] * SIZE_VARIANCE).exp()
    return to_corners(torch.cat([centre, size], -1))
