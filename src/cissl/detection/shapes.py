"""A set that is made, not fetched: shapes of six kinds, one of them twenty times as frequent as another.

Each kind has an outline, and a hue that it keeps to more or less: hues of neighbouring kinds overlap.
"""

import colorsys
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from cissl.detection.data import DetectionData, Picture
from cissl.protocol import class_counts
from cissl.randomness import stream

CLASSES = ("disc", "square", "triangle", "ring", "cross", "star")  # the most frequent first
IMBALANCE = 20.0
SIZE = 96  # pixels, each way
LABELED, UNLABELED, TEST = 150, 150, 200  # pictures
OBJECTS, MOST = 2.5, 4  # of a picture, on average and at most
HUE_DEVIATION = 0.07  # kinds are 1/6 apart
CONTRAST = 90  # levels of grey between a shape and what is around it, of the channel that differs most
SMALLEST, LARGEST = 20, 48  # pixels
Polygon = npt.NDArray[np.float64]


def load(seed: int, labeled: int = LABELED, unlabeled: int = UNLABELED, test: int = TEST) -> DetectionData:
    """Labeled and unlabeled pictures are imbalanced alike; of the test pictures' objects each kind has its share."""
    return DetectionData(
        "shapes",
        CLASSES,
        pictures(seed, "labeled", labeled, IMBALANCE),
        pictures(seed, "unlabeled", unlabeled, IMBALANCE),
        pictures(seed, "test", test, 1.0),
    )


def pictures(seed: int, part: str, count: int, imbalance: float) -> list[Picture]:
    """So many pictures, with exactly the numbers of objects that the imbalance asks for, dealt out at random."""
    rng = np.random.default_rng(stream(seed, f"shapes/{part}"))
    counts = class_counts(max(round(OBJECTS * count), len(CLASSES)), imbalance, len(CLASSES))
    places = np.full((count, max(MOST, -(-sum(counts) // count))), -1)
    places.flat[: sum(counts)] = np.repeat(np.arange(len(CLASSES)), counts)
    dealt = rng.permutation(places.ravel()).reshape(places.shape)
    return [_picture(f"{part}-{place:04d}", row[row >= 0], rng) for place, row in enumerate(dealt)]


def _picture(name: str, classes: npt.NDArray[np.int64], rng: np.random.Generator) -> Picture:
    image = Image.fromarray(_background(rng))
    draw = ImageDraw.Draw(image)
    boxes: list[npt.NDArray[np.float64]] = []
    for kind in classes:
        outline = _placed(SHAPES[CLASSES[kind]](rng), boxes, rng)
        colour = _colour(int(kind), image, outline, rng)
        if CLASSES[kind] == "ring":
            thickness = max(2, round((outline[:, 0].max() - outline[:, 0].min()) / 6))
            draw.polygon([*map(tuple, outline)], outline=colour, width=thickness)
        else:
            draw.polygon([*map(tuple, outline)], fill=colour)
        boxes.append(_box(outline))
    noisy = np.asarray(image) + 8 * rng.standard_normal((SIZE, SIZE, 3), dtype=np.float32)
    return Picture(
        name,
        np.clip(noisy, 0, 255).astype(np.uint8),
        np.array(boxes).reshape(-1, 4),
        classes.astype(np.int64),
        np.zeros(len(classes), dtype=bool),
    )


def _background(rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """From one colour to another, with a few lines across it that are no object."""
    start, end = rng.uniform(40, 215, (2, 3))
    along = np.linspace(0, 1, SIZE)[:, None, None]
    shade = np.broadcast_to(start + (end - start) * along, (SIZE, SIZE, 3))
    turned = np.ascontiguousarray(np.rot90(shade, int(rng.integers(4))).astype(np.uint8))
    image = Image.fromarray(turned)
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(0, 4)):
        ends = rng.uniform(0, SIZE, 4)
        draw.line([float(end) for end in ends], fill=tuple(int(part) for part in rng.integers(0, 256, 3)))
    return np.asarray(image)


def _colour(kind: int, image: Image.Image, outline: Polygon, rng: np.random.Generator) -> tuple[int, ...]:
    """One of the kind's that can be told from what is there, if one is found soon."""
    middle = outline.mean(0)
    there = np.array(image.getpixel((int(middle[0]), int(middle[1]))))
    for _ in range(20):
        hue = kind / len(CLASSES) + rng.normal(0, HUE_DEVIATION)
        colour = tuple(round(255 * part) for part in colorsys.hsv_to_rgb(hue % 1, *rng.uniform(0.5, 1, 2)))
        if np.abs(np.array(colour) - there).max() >= CONTRAST:
            break
    return colour


def _placed(unit: Polygon, others: list[npt.NDArray[np.float64]], rng: np.random.Generator) -> Polygon:
    """The shape at a place where it hides no other, if one is found soon; else where it was tried last."""
    low, high = unit.min(0), unit.max(0)
    unit = (unit - low) / (high - low).max()
    for attempt in range(20):
        size = rng.uniform(SMALLEST, LARGEST if attempt < 10 else 2 * SMALLEST)
        outline = unit * size
        outline = outline + rng.uniform(0, SIZE - 1 - outline.max(0))
        if not any(_overlap(_box(outline), other) for other in others):
            break
    return outline


def _box(outline: Polygon) -> npt.NDArray[np.float64]:
    """Around the pixels that are painted: the last of them included."""
    return np.concatenate([np.floor(outline.min(0)), np.minimum(np.floor(outline.max(0)) + 1, SIZE)])


def _overlap(box: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> bool:
    return bool((np.minimum(box[2:], other[2:]) > np.maximum(box[:2], other[:2])).all())


# ---- Outlines, about the origin


def _regular(corners: int) -> Callable[[np.random.Generator], Polygon]:
    """With its corners on a circle, turned a little."""

    def outline(rng: np.random.Generator) -> Polygon:
        return _turned(_circle(np.ones(corners)), rng.uniform(-0.3, 0.3) + math.pi / corners)

    return outline


def _circle(radii: npt.NDArray[np.float64]) -> Polygon:
    angles = 2 * math.pi * np.arange(len(radii)) / len(radii) + math.pi / 2
    outline: Polygon = radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1)
    return outline


def _turned(outline: Polygon, angle: float) -> Polygon:
    cos, sin = math.cos(angle), math.sin(angle)
    turned: Polygon = outline @ np.array([[cos, sin], [-sin, cos]])
    return turned


def _cross(rng: np.random.Generator) -> Polygon:
    a, b = 0.3, 1.0
    corner = [
        (a, a),
        (a, b),
        (-a, b),
        (-a, a),
        (-b, a),
        (-b, -a),
        (-a, -a),
        (-a, -b),
        (a, -b),
        (a, -a),
        (b, -a),
        (b, a),
    ]
    return _turned(np.array(corner), rng.uniform(-0.3, 0.3))


def _star(rng: np.random.Generator) -> Polygon:
    return _turned(_circle(np.tile([1.0, 0.42], 5)), rng.uniform(-0.3, 0.3))


def _disc(rng: np.random.Generator) -> Polygon:
    return _circle(np.ones(32)) * (1.0, rng.uniform(0.8, 1.0))


SHAPES: dict[str, Callable[[np.random.Generator], Polygon]] = {
    "disc": _disc,
    "square": _regular(4),
    "triangle": _regular(3),
    "ring": _disc,
    "cross": _cross,
    "star": _star,
}
