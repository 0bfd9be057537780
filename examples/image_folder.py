"""A folder of images from end to end: train, predict, evaluate, and load the model in Python.

The images are made here: discs, squares and, rarely, crosses, at random places in noise. 45 of them are labeled, by the
folder that they lie in, and 200 are not. Takes a few seconds.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import cissl

LABELED = {"disc": 24, "square": 16, "cross": 5}
SIZE = 16


def picture(shape: str, random: np.random.Generator) -> Image.Image:
    """A shape in light grey on dark noise."""
    x, y = np.meshgrid(np.arange(SIZE), np.arange(SIZE)) - random.integers(5, SIZE - 5, (2, 1, 1))
    inside = {
        "disc": x**2 + y**2 < 16,
        "square": np.maximum(abs(x), abs(y)) < 4,
        "cross": (np.minimum(abs(x), abs(y)) < 1) & (np.maximum(abs(x), abs(y)) < 5),
    }[shape]
    return Image.fromarray((120 * random.random((SIZE, SIZE)) + 120 * inside).astype(np.uint8))


def draw(folder: Path, shapes: dict[str, int], random: np.random.Generator) -> None:
    for shape, count in shapes.items():
        (folder / shape).mkdir(parents=True)
        for number in range(count):
            picture(shape, random).save(folder / shape / f"{number}.png")


def run(*words: str) -> None:
    print(">", "cissl", *words, flush=True)
    subprocess.run([sys.executable, "-m", "cissl", *words], check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        folder, random = Path(place), np.random.default_rng(0)
        draw(folder / "labeled", LABELED, random)
        draw(folder / "more", {"disc": 100, "square": 70, "cross": 30}, random)  # its folders are not looked at
        draw(folder / "test", {"disc": 40, "square": 40, "cross": 40}, random)
        labeled, more, model = (str(folder / name) for name in ("labeled", "more", "model"))
        run("train", "--images", labeled, "--unlabeled", more, "--size", "16", "--steps", "80", "--out", model)
        run("evaluate", model, str(folder / "test"))
        classifier = cissl.load(model)
        print(classifier.predict(np.stack([picture("cross", random) for _ in range(3)])))
