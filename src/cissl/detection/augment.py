"""The SSD paper's augmentation: photometric distortion, expansion, a crop that holds objects, mirror, resize.

Images are uint8 (h, w, 3), boxes are corners relative to the image, float32; everything is drawn from the generator
given, and nothing given is changed. Expansion and crop only choose a window, in coordinates of the image, so that
pixels are touched once, and at the size that comes out: milliseconds for any photograph.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

MEAN = (123, 117, 104)  # what an expanded image is filled with: the mean that the network subtracts
LEAST_OVERLAPS = (None, 0.1, 0.3, 0.5, 0.7, 0.9, 0.0)  # of a crop with an object; None: no crop, 0: any crop
TRIES = 50  # crops of one overlap, before another is drawn

Box = Float[np.ndarray, "4"]


class Sample(NamedTuple):
    """One image with its objects."""

    image: UInt8[np.ndarray, "h w 3"]
    boxes: Float[np.ndarray, "m 4"]
    classes: Int[np.ndarray, " m"]


def augment(sample: Sample, size: int, generator: np.random.Generator) -> Sample:
    """A random view of size x size pixels with the objects whose centre is in it.

    Works without objects, as of an unlabeled image: then a crop has to show enough of the image itself.
    """
    height, width = sample.image.shape[:2]
    window = expansion(generator)
    objects = sample.boxes if len(sample.boxes) else np.array([[0, 0, 1, 1]], np.float32)
    window = crop(window, objects, width / height, generator)
    return seen_through(sample, window, size, generator)


def augment_lightly(sample: Sample, size: int, generator: np.random.Generator) -> Sample:
    """Less of it, ours, for small networks and short trainings: photometric distortion, a window of 0.75 to 1.25 times
    the image's sides that is off its centre by no more than that, mirror.
    """
    side = generator.uniform(0.75, 1.25)
    corner = generator.uniform(min(0, 1 - side), max(0, 1 - side), 2)
    window = np.concatenate([corner, corner + side])
    return seen_through(sample, window, size, generator)


def seen_through(sample: Sample, window: Box, size: int, generator: np.random.Generator) -> Sample:
    """What the window shows, its colours distorted, mirrored or not, with the objects whose centre is in it."""
    boxes, inside = within(sample.boxes, window)
    view = render(sample.image, window, size, generator)
    if generator.random() < 0.5:
        view, boxes = np.ascontiguousarray(view[:, ::-1]), mirror(boxes)
    return Sample(view, boxes, sample.classes[inside])


def unchanged(sample: Sample, size: int, generator: np.random.Generator) -> Sample:
    """The whole image, for want of any augmentation."""
    return Sample(resize(sample.image, size), sample.boxes, sample.classes)


def resize(image: UInt8[np.ndarray, "h w 3"], size: int) -> UInt8[np.ndarray, "size size 3"]:
    """The whole image at size x size pixels, as a detector sees it where nothing is augmented."""
    return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR))


# ---- Windows


def expansion(generator: np.random.Generator) -> Box:
    """Every second time up to four times the image's sides, with the image anywhere in it."""
    if generator.random() < 0.5:
        return np.array([0.0, 0.0, 1.0, 1.0])
    ratio = generator.uniform(1, 4)
    left, top = generator.uniform(0, ratio - 1, 2)
    return np.array([-left, -top, ratio - left, ratio - top])


def crop(window: Box, boxes: Float[np.ndarray, "m 4"], aspect: float, generator: np.random.Generator) -> Box:
    """A part of the window, or all of it: at least 0.3 of its sides, not more than twice as long as wide or wide as
    long, with an object that it overlaps by at least what was drawn, and the centre of an object in it.

    `aspect` is the image's width over its height.
    """
    corner, sides = window[:2], window[2:] - window[:2]
    for _ in range(TRIES):
        least = LEAST_OVERLAPS[generator.integers(len(LEAST_OVERLAPS))]
        if least is None:
            return window
        fractions = generator.uniform(0.3, 1, (TRIES, 2))
        places = generator.uniform(0, 1 - fractions)
        crops = np.concatenate([corner + places * sides, corner + (places + fractions) * sides], 1)
        shape = aspect * fractions[:, 0] / fractions[:, 1]
        fits = (shape >= 0.5) & (shape <= 2) & (_overlaps(crops, boxes).max(1) >= least) & _centred(crops, boxes).any(1)
        if fits.any():
            return np.asarray(crops[fits.argmax()])
    return window


def within(boxes: Float[np.ndarray, "m 4"], window: Box) -> tuple[Float[np.ndarray, "k 4"], Int[np.ndarray, " k"]]:
    """The boxes whose centre is in the window, cut off at its border and relative to it, and their numbers."""
    inside = np.flatnonzero(_centred(window[None], boxes)[0])
    corner, sides = np.tile(window[:2], 2), np.tile(window[2:] - window[:2], 2)
    return ((boxes[inside] - corner) / sides).clip(0, 1).astype(np.float32), inside


def mirror(boxes: Float[np.ndarray, "m 4"]) -> Float[np.ndarray, "m 4"]:
    """The boxes in the image mirrored left to right."""
    return np.stack([1 - boxes[:, 2], boxes[:, 1], 1 - boxes[:, 0], boxes[:, 3]], 1)


def _centred(windows: Float[np.ndarray, "n 4"], boxes: Float[np.ndarray, "m 4"]) -> np.ndarray:
    """Whether the centre of each box is in each window."""
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    inside = (windows[:, None, :2] <= centres) & (centres <= windows[:, None, 2:])
    return np.asarray(inside.all(2))


def _overlaps(a: Float[np.ndarray, "n 4"], b: Float[np.ndarray, "m 4"]) -> Float[np.ndarray, "n m"]:
    """Intersection over union."""
    sides = np.minimum(a[:, None, 2:], b[:, 2:]) - np.maximum(a[:, None, :2], b[:, :2])
    both = sides.clip(0).prod(2)
    areas_a, areas_b = ((boxes[:, 2:] - boxes[:, :2]).prod(1) for boxes in (a, b))
    return np.asarray(both / (areas_a[:, None] + areas_b - both))


# ---- Pixels


def render(
    image: UInt8[np.ndarray, "h w 3"], window: Box, size: int, generator: np.random.Generator | None = None
) -> UInt8[np.ndarray, "size size 3"]:
    """What is seen through the window at size x size pixels, distorted if there is a generator; mean beside the image.

    Pixels that are only partly in the image are filled, so that nothing in it is moved or stretched.
    """
    height, width = image.shape[:2]
    (x0, y0), (wide, high) = window[:2], window[2:] - window[:2]
    left, right = _covered(-x0 / wide, (1 - x0) / wide, size)
    top, bottom = _covered(-y0 / high, (1 - y0) / high, size)
    view = np.empty((size, size, 3), np.uint8)
    view[:] = MEAN
    if left < right and top < bottom:
        columns = ((x0 + at / size * wide) * width for at in (left, right))
        rows = ((y0 + at / size * high) * height for at in (top, bottom))
        (c0, c1), (r0, r1) = (np.clip(list(edges), 0, end) for edges, end in ((columns, width), (rows, height)))
        part = Image.fromarray(image).resize((right - left, bottom - top), Image.Resampling.BILINEAR, (c0, r0, c1, r1))
        view[top:bottom, left:right] = np.asarray(part) if generator is None else distort(np.asarray(part), generator)
    return view


def _covered(low: float, high: float, size: int) -> tuple[int, int]:
    """The first and after the last pixel that are wholly between two edges, given relative to the view."""
    return max(0, math.ceil(low * size - 1e-6)), min(size, math.floor(high * size + 1e-6))


def distort(image: UInt8[np.ndarray, "h w 3"], generator: np.random.Generator) -> UInt8[np.ndarray, "h w 3"]:
    """Brightness up to 32 more or less, contrast and saturation by half to one and a half, hue up to 18 degrees; each
    every second time, contrast before or after the colours.
    """
    does = generator.random(5) < 0.5
    pixels = image.astype(np.float32)
    if does[0]:
        pixels += np.float32(generator.uniform(-32, 32))
    contrast = np.float32(generator.uniform(0.5, 1.5) if does[1] else 1)
    if does[2]:
        pixels *= contrast
    saturation = generator.uniform(0.5, 1.5) if does[3] else 1.0
    hue = generator.uniform(-18, 18) / 360 if does[4] else 0.0
    if does[3] or does[4]:
        colours = np.array(Image.fromarray(_as_bytes(pixels)).convert("HSV"))
        colours[..., 0] += np.uint8(round(256 * hue) % 256)  # around the circle
        colours[..., 1] = _as_bytes(colours[..., 1] * np.float32(saturation))
        pixels = np.asarray(Image.fromarray(colours, "HSV").convert("RGB"), np.float32)
    if not does[2]:
        pixels = pixels * contrast
    return _as_bytes(pixels)


def _as_bytes(pixels: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape"]:
    return pixels.clip(0, 255).round().astype(np.uint8)
