"""Images of one's own: finding the files and their labels, and reading each as an array of one size. No torch."""

import csv
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

Pixels = npt.NDArray[np.uint8]  # (height, width, channels)
Resize = Literal["letterbox", "stretch"]

KINDS = ("jpg", "jpeg", "png", "bmp", "gif", "tif", "tiff", "webp", "avif", "dib", "jfif", "jp2", "jpe", "pbm", "pgm")
SUFFIXES = frozenset(f".{kind}" for kind in (*KINDS, "pnm", "ppm", "tga"))
GREY_MODES = frozenset({"1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "I;16N"})
TRANSPARENT = frozenset({"RGBA", "LA", "PA", "RGBa", "La"})
WITHOUT_RANGE = frozenset({"I", "F"})  # 32 bits: nobody knows which number is white
PATH_COLUMN, LABEL_COLUMN = "path", "label"
SAMPLED = 200  # files that are opened to learn how large images are and whether they have colours
LARGEST, SMALLEST = 64, 8  # pixels: what --size becomes when it is not given
BLOCK = 256  # files read before the next are begun


# ---- Which files


@dataclass(frozen=True)
class Listing:
    """Files under `root`, in the order of their names; a label is None where there is none."""

    root: str
    names: list[str]  # relative to root, as the user sees them
    labels: list[str | None]
    remarks: list[str] = field(default_factory=list)  # what was left out, and why

    def __len__(self) -> int:
        return len(self.names)

    def path(self, place: int) -> str:
        return os.path.join(self.root, self.names[place])

    def chosen(self, places: Sequence[int]) -> "Listing":
        return Listing(self.root, [self.names[i] for i in places], [self.labels[i] for i in places])


def find(source: Path, labeled: bool = True) -> Listing:
    """The images of a folder (labeled: SOURCE/CLASS/…/image.jpg) or of a CSV file with columns path and label."""
    if source.is_dir():
        return _of_classes(source) if labeled else _of_folder(source)
    if not source.exists():
        raise ValueError(f"there is no {source}: expected a folder of images or a CSV file with a column {PATH_COLUMN}")
    if source.suffix.lower() in SUFFIXES:
        raise ValueError(f"{source} is an image: expected a folder of images or a CSV file with a column {PATH_COLUMN}")
    return _of_csv(source, labeled)


def _of_classes(root: Path) -> Listing:
    names, others = _walk(root)
    loose = [name for name in names if os.sep not in name]
    if loose:
        raise ValueError(
            f"{_some(loose)} in {root} {'is' if len(loose) == 1 else 'are'} in no class: expected {root}/CLASS/image. "
            "Move them into a folder named as their class, or give images without a label with --unlabeled"
        )
    if not names:
        raise ValueError(_nothing(root, others, f"{root}/CLASS/image.jpg, a folder for each class"))
    labels = [name.split(os.sep, 1)[0] for name in names]
    folders = [entry.name for entry in os.scandir(root) if entry.is_dir() and not _hidden(entry.name)]
    empty = sorted(set(folders) - set(labels))
    remarks = [f"no image in {_some(empty)}: left out of the classes"] if empty else []
    return Listing(str(root), names, list(labels), remarks + _other_files(others))


def _of_folder(root: Path) -> Listing:
    names, others = _walk(root)
    if not names:
        raise ValueError(_nothing(root, others, "images in it, in folders of any depth"))
    return Listing(str(root), names, [None] * len(names), _other_files(others))


def _nothing(root: Path, others: list[str], expected: str) -> str:
    found = f", only {_some(others)}" if others else ""
    return f"no image in {root}{found}: expected {expected}, named .{', .'.join(KINDS[:8])} or the like"


def _walk(root: Path) -> tuple[list[str], list[str]]:
    """Images and other files below root. Links to folders are followed, but never round in a circle."""
    names, others, waiting, seen = list[str](), list[str](), [""], {os.path.realpath(root)}
    while waiting:
        below = waiting.pop()
        with os.scandir(os.path.join(root, below)) as entries:
            for entry in entries:
                name = os.path.join(below, entry.name)
                if _hidden(entry.name):
                    continue
                if entry.is_dir():
                    real = os.path.realpath(entry.path) if entry.is_symlink() else ""
                    if real not in seen:
                        waiting.append(name)
                        seen |= {real} - {""}
                else:
                    (names if os.path.splitext(name)[1].lower() in SUFFIXES else others).append(name)
    return sorted(names), sorted(others)


def _hidden(name: str) -> bool:
    return name.startswith((".", "__MACOSX")) or name == "Thumbs.db"


def _other_files(others: list[str]) -> list[str]:
    return [f"no images by their names, left out: {_some(others)}"] if others else []


def _some(names: Sequence[str], shown: int = 3) -> str:
    """The first few of them, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _of_csv(source: Path, labeled: bool) -> Listing:
    """path,label: the paths relative to the file's own folder, an empty label means unlabeled."""
    given: dict[str, str | None] = {}
    rows = rows_of(source)
    try:
        line, header = next(rows)
    except StopIteration:
        raise ValueError(f"{source} is empty: expected a first line {PATH_COLUMN},{LABEL_COLUMN}") from None
    wanted = (PATH_COLUMN, LABEL_COLUMN) if labeled else (PATH_COLUMN,)
    missing = [name for name in wanted if name not in header]
    if missing:
        raise ValueError(
            f"{source} has no column {' and no column '.join(missing)}: its first line is {_some(header, 8)!r}, "
            f"expected {','.join(wanted)}"
        )
    path_at, label_at = header.index(PATH_COLUMN), header.index(LABEL_COLUMN) if labeled else None
    repeated, remarks = 0, list[str]()
    for line, row in rows:
        if len(row) != len(header):
            raise ValueError(f"{source}, line {line}: expected {len(header)} cells as in line 1, got {len(row)}")
        name, label = row[path_at].strip(), None if label_at is None else row[label_at].strip() or None
        if not name or "\0" in name:
            raise ValueError(f"{source}, line {line}: {'no path' if not name else 'a path with a null character'}")
        if name in given:
            repeated += 1
            if given[name] != label:
                raise ValueError(f"{source}, line {line}: {name} is {label!r} here and {given[name]!r} before: decide")
        given[name] = label
    if not given:
        raise ValueError(f"{source} has no line but the first: list an image on each")
    if repeated:
        remarks.append(f"{repeated} rows of {source} name an image once more: counted once")
    return Listing(str(source.parent), list(given), list(given.values()), remarks)


def rows_of(source: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of a text table; separated by comma, semicolon or tab, as its first line is."""
    try:
        with source.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            delimiter = max(",;\t", key=first.count)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for row in reader:
                if row:  # not an empty line
                    yield reader.line_num, row
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is no text in UTF-8 ({error.reason}): save it as CSV in UTF-8") from None
    except csv.Error as error:
        raise ValueError(f"{source}, line {reader.line_num}: {error}: mend that line") from None


# ---- Reading one


@dataclass(frozen=True)
class Reading:
    """How files become arrays of one size: part of a model, so that all it ever sees is read alike."""

    size: int
    channels: Literal[1, 3]
    resize: Resize = "letterbox"

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.size, self.size, self.channels)


class Broken(str):
    """Why a file could not be read."""


def read(path: str, reading: Reading) -> Pixels | Broken:
    """The image in one size and kind, whatever it was: turned as its EXIF says, on white where it is transparent, 16
    bits as 8, the first frame of several."""
    try:
        with Image.open(path) as image:
            image.draft(None, (2 * reading.size, 2 * reading.size))  # JPEG: decode no more than is needed
            return _resized(_plain(_upright(image), reading.channels), reading)
    except FileNotFoundError:
        return Broken("there is no such file")
    except Exception as error:  # a decoder may raise anything on what it did not expect
        return Broken(_reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image, or damaged at its beginning"
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF says nothing of how the image lies
        return image


def _plain(image: Image.Image, channels: int) -> Image.Image:
    """8 bits, grey or RGB."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        wide = np.asarray(image).astype(np.float32)
        image = Image.fromarray(np.rint(np.clip(wide, 0, 65535) / 257).astype(np.uint8))
    if image.mode in WITHOUT_RANGE:
        raise ValueError(f"pixels of 32 bits ({image.mode}) have no range that is known: save it with 8 or 16 bits")
    if image.mode in TRANSPARENT or "transparency" in image.info:
        over = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", over.size, "white"), over)
    return image.convert("L" if channels == 1 else "RGB")


def _resized(image: Image.Image, reading: Reading) -> Pixels:
    """Letterbox: the longer side fits, the rest has the image's own mean colour, which says nothing new to a network
    once samples are standardised. Stretch: both sides fit, shapes are distorted."""
    size, (width, height) = reading.size, image.size
    if reading.resize == "letterbox":
        scale = size / max(width, height)
        width, height = max(1, round(width * scale)), max(1, round(height * scale))
    else:
        width = height = size
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=None)
    pixels = np.asarray(image).reshape(height, width, reading.channels)
    if (width, height) == (size, size):
        return np.ascontiguousarray(pixels)
    whole = np.empty(reading.shape, np.uint8)
    whole[:] = np.rint(pixels.mean((0, 1))).astype(np.uint8)
    top, left = (size - height) // 2, (size - width) // 2
    whole[top : top + height, left : left + width] = pixels
    return whole


def read_all(listing: Listing, reading: Reading, start: int = 0) -> Iterator[list[Pixels | Broken]]:
    """All files from `start` on in order, a block at a time, on every core: decoders leave Python's lock alone."""
    places = iter(range(start, len(listing)))
    with quiet(), ThreadPoolExecutor(cores()) as pool:
        while block := list(islice(places, BLOCK)):
            yield list(pool.map(lambda place: read(listing.path(place), reading), block))


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def quiet() -> Iterator[None]:
    """A decoder's remarks name no file: what it cannot read is reported with its name instead."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# ---- What is there


@dataclass(frozen=True)
class Look:
    """What a sample of the files says of all: median height and width, and whether any has colours."""

    height: float
    width: float
    colours: bool

    @property
    def size(self) -> int:
        """What --size becomes: no larger than the images are, and small enough to train on a processor."""
        return int(min(LARGEST, max(SMALLEST, round(max(self.height, self.width)))))


def look(listing: Listing) -> Look | None:
    """Open some of the files, spread evenly; None if none of those can be opened."""
    places = np.unique(np.linspace(0, len(listing) - 1, min(SAMPLED, len(listing))).astype(np.int64))
    with quiet():
        heads = [head for place in places if (head := _head(listing.path(int(place)))) is not None]
    if not heads:
        return None
    return Look(_median(h for h, _, _ in heads), _median(w for _, w, _ in heads), any(c for _, _, c in heads))


def _median(values: Iterable[int]) -> float:
    return float(np.median(list(values)))


def _head(path: str) -> tuple[int, int, bool] | None:
    try:
        with Image.open(path) as image:
            turned = _turned(image)
            width, height = image.size[::-1] if turned else image.size
            return height, width, _has_colours(image)
    except Exception:  # reported with its reason when all are read
        return None


def _turned(image: Image.Image) -> bool:
    orientation: Any = image.getexif().get(0x0112, 1)
    return orientation in (5, 6, 7, 8)


def _has_colours(image: Image.Image) -> bool:
    """Also a palette may be all grey."""
    if image.mode != "P":
        return image.mode not in GREY_MODES
    palette = np.array(image.getpalette() or [0], dtype=np.int64)
    colours = palette[: len(palette) // 3 * 3].reshape(-1, 3)
    return bool((colours != colours[:, :1]).any())
