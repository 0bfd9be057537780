"""Folders of small images, drawn: bright discs in one class, dark squares in another, for the tests of own data."""

from pathlib import Path

import numpy as np
from PIL import Image


def picture(kind, seed, size=(20, 16), mode="RGB"):
    """A picture of a class: its brightness and place vary, its shape says what it is."""
    rng = np.random.default_rng([seed, sum(kind.encode())])
    height, width = size[1], size[0]
    y, x = np.mgrid[:height, :width]
    pixels = rng.integers(90, 130, (height, width, 3))
    row, column = rng.integers(height // 3, height - height // 3), rng.integers(width // 3, width - width // 3)
    radius = min(size) // 4
    inside = (
        (y - row) ** 2 + (x - column) ** 2 <= radius**2
        if kind == "disc"
        else np.maximum(abs(y - row), abs(x - column)) <= radius
    )
    pixels[inside] = rng.integers(200, 250, 3) if kind == "disc" else rng.integers(5, 50, 3)
    return Image.fromarray(pixels.astype(np.uint8)).convert(mode)


def folder(root, counts, start=0, suffix=".png", **how):
    """root/CLASS/NUMBER.png for each class."""
    for kind, count in counts.items():
        (root / kind).mkdir(parents=True, exist_ok=True)
        for number in range(start, start + count):
            picture(kind, number, **how).save(root / kind / f"{number:03d}{suffix}")
    return Path(root)


def flat(root, counts, start=1000, **how):
    """root/KIND-NUMBER.png, as unlabeled images lie."""
    root.mkdir(parents=True, exist_ok=True)
    for kind, count in counts.items():
        for number in range(start, start + count):
            picture(kind, number, **how).save(root / f"{kind}-{number}.png")
    return Path(root)
