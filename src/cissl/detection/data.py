"""What a detector is trained and tested on: pictures, their objects, and reading them."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

CACHE = 2 * 2**30  # bytes of decoded pictures kept in memory: all of the small sets, a part of VOC
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
NO_BOXES = np.zeros((0, 4))
NO_CLASSES = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture and its objects. Boxes are corners (x0, y0, x1, y1) in pixels; difficult objects are neither
    trained on nor counted, and finding one is no mistake."""

    name: str
    source: Path | npt.NDArray[np.uint8]  # a file, or the picture itself: (height, width, 3)
    boxes: npt.NDArray[np.float64]
    classes: npt.NDArray[np.int64]
    difficult: npt.NDArray[np.bool_]

    def trained_on(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Boxes and classes of the objects that are not difficult."""
        return self.boxes[~self.difficult], self.classes[~self.difficult]


@dataclass(frozen=True)
class DetectionData:
    """Labeled, unlabeled and test pictures. What objects there are in an unlabeled one is never looked at in training;
    where it is known it is counted, to be reported."""

    name: str
    class_names: tuple[str, ...]
    labeled: Sequence[Picture]
    unlabeled: Sequence[Picture]
    test: Sequence[Picture]

    def __post_init__(self) -> None:
        if not self.labeled:
            raise ValueError(f"{self.name}: there is no labeled picture: give at least one")
        if not sum(self.labeled_counts):
            raise ValueError(f"{self.name}: no labeled picture has an object in it that is not difficult")

    @property
    def labeled_counts(self) -> list[int]:
        return object_counts(self.labeled, len(self.class_names))

    @property
    def unlabeled_counts(self) -> list[int]:
        return object_counts(self.unlabeled, len(self.class_names))


def object_counts(pictures: Sequence[Picture], n_classes: int) -> list[int]:
    """How many objects of each class there are, difficult ones left out."""
    classes = [picture.trained_on()[1] for picture in pictures]
    counts: list[int] = np.bincount(np.concatenate([NO_CLASSES, *classes]), minlength=n_classes).tolist()
    return counts


def unannotated(folder: Path) -> list[Picture]:
    """The pictures of a folder, in the order of their names; nothing is known of what is on them."""
    if not folder.is_dir():
        raise ValueError(f"expected a folder of pictures, found none at {folder}: give the path of one")
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    if not files:
        raise ValueError(f"{folder} has no picture in it: expected files that end in {', '.join(ENDINGS)}")
    return [
        Picture(str(path.relative_to(folder)), path, NO_BOXES, NO_CLASSES, NO_CLASSES.astype(bool)) for path in files
    ]


def read(picture: Picture) -> npt.NDArray[np.uint8]:
    """The picture in RGB: (height, width, 3)."""
    if isinstance(picture.source, np.ndarray):
        return picture.source
    try:
        with Image.open(picture.source) as image:
            return np.asarray(image.convert("RGB"))
    except FileNotFoundError:
        raise ValueError(f"there is no picture {picture.source}: put it there, or leave it out of the list") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{picture.source} is no picture that can be read: {error}") from error


class Reader:
    """Reads pictures and keeps as many of them as fit; what is kept changes nothing but the time that it takes."""

    def __init__(self, room: int = CACHE) -> None:
        self.room, self.kept = room, dict[Any, npt.NDArray[np.uint8]]()
        self.lock = threading.Lock()

    def __call__(self, picture: Picture) -> npt.NDArray[np.uint8]:
        if isinstance(picture.source, np.ndarray):
            return picture.source
        if (known := self.kept.get(picture.source)) is not None:
            return known
        image = read(picture)
        with self.lock:
            if picture.source not in self.kept and image.nbytes <= self.room:
                self.kept[picture.source] = image
                self.room -= image.nbytes
        return image


def relative(boxes: npt.NDArray[Any], image: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Boxes in pixels as fractions of the picture's width and height, what stands out of the picture cut off."""
    height, width = image.shape[:2]
    within: npt.NDArray[np.float64] = np.clip(boxes / (width, height, width, height), 0.0, 1.0)
    return within
