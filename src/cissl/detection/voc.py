"""PASCAL VOC devkit folders: VOC2007 trainval labeled, VOC2012 trainval unlabeled, VOC2007 test; and fetching them."""

import math
import os
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np

from cissl import datasets, records
from cissl.detection.data import NO_BOXES, DetectionData, Picture
from cissl.downloads import Bar, retrieve
from cissl.names import unknown

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
LABELED, UNLABELED, TEST = ("VOC2007", "trainval"), ("VOC2012", "trainval"), ("VOC2007", "test")


def load(folder: Path, unlabeled: bool = True) -> DetectionData:
    """The paper's parts of a devkit. Without the unlabeled pictures, for methods that do not need them, VOC2012 may be
    absent."""
    devkit = find(folder)
    return DetectionData(
        "voc", CLASSES, pictures(devkit, *LABELED), pictures(devkit, *UNLABELED) if unlabeled else [],
        pictures(devkit, *TEST),
    )  # fmt: skip


def find(folder: Path) -> Path:
    """The devkit in a folder, or the folder itself."""
    for place in (folder, folder / "VOCdevkit"):
        if (place / "VOC2007").is_dir():
            return place
    raise ValueError(
        f"expected a folder VOCdevkit with VOC2007 in it at {folder}, found none: give its path with --voc, or get it "
        "with `cissl data fetch voc2007` and `cissl data fetch voc2012`"
    )


def pictures(devkit: Path, year: str, part: str) -> list[Picture]:
    """The pictures that ImageSets/Main lists, with their annotations."""
    folder = devkit / year
    names = listed(folder / "ImageSets" / "Main" / f"{part}.txt", year)
    return [_picture(folder, name) for name in names]


def listed(path: Path, year: str) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ValueError(f"there is no {path}: get it with `cissl data fetch {year.lower()}`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    names = [line.split()[0] for line in lines if line.strip()]
    for name in names:
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ValueError(f"{path}: expected names of pictures, one a line, such as 000005, got {name!r}")
    return names


def _picture(folder: Path, name: str) -> Picture:
    annotation, image = folder / "Annotations" / f"{name}.xml", folder / "JPEGImages" / f"{name}.jpg"
    if not image.is_file():
        raise ValueError(f"there is no {image}, which {folder.name}/ImageSets/Main lists: put it there")
    try:
        objects = [_object(element) for element in parse(annotation.read_bytes()).findall("object")]
    except FileNotFoundError:
        raise ValueError(f"there is no {annotation}, which {folder.name}/ImageSets/Main lists: put it there") from None
    except (OSError, ValueError, expat.ExpatError) as error:
        raise ValueError(f"{annotation} cannot be used: {error}") from error
    return Picture(
        name,
        image,
        np.array([box for box, _, _ in objects]) if objects else NO_BOXES,
        np.array([CLASSES.index(known) for _, known, _ in objects], dtype=np.int64),
        np.array([difficult for _, _, difficult in objects], dtype=bool),
    )


def parse(content: bytes) -> Element:
    """The root of an XML file. A DOCTYPE is refused: an annotation needs none, and entities can be made to explode."""

    def refuse(*_: Any) -> None:
        raise ValueError("it has a DOCTYPE, which an annotation needs not: take it out")

    builder, parser = TreeBuilder(), expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.Parse(content, True)
    return builder.close()


def _object(element: Element) -> tuple[list[float], str, bool]:
    """The box of an object itself, not of one of its parts; pixels are counted from 1 there."""
    name = (element.findtext("name") or "").strip()
    if name not in CLASSES:
        raise unknown("class of an object", name, CLASSES)
    box = [_number(element, f"bndbox/{side}", name) - 1 for side in ("xmin", "ymin", "xmax", "ymax")]
    if box[2] < box[0] or box[3] < box[1]:
        raise ValueError(f"the box of a {name} ends before it begins: {[side + 1 for side in box]}")
    return box, name, (element.findtext("difficult") or "0").strip() == "1"


def _number(element: Element, where: str, name: str) -> float:
    text = element.findtext(where)
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"object {name}: expected a number as {where}, got {text!r}")
    return number


# ---- Fetching


@dataclass(frozen=True)
class Archive:
    url: str
    md5: str  # as published
    folder: str

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[1]


OTHERWISE = ", or give an unpacked VOCdevkit with --voc"
OXFORD = "http://host.robots.ox.ac.uk/pascal/VOC"
ARCHIVES: dict[str, tuple[Archive, ...]] = {
    "voc2007": (
        Archive(f"{OXFORD}/voc2007/VOCtrainval_06-Nov-2007.tar", "c52e279531787c972589f7e41ab4ae64", "VOC2007"),
        Archive(f"{OXFORD}/voc2007/VOCtest_06-Nov-2007.tar", "b6e924de25625d8de591ea690078ad9f", "VOC2007"),
    ),
    "voc2012": (
        Archive(f"{OXFORD}/voc2012/VOCtrainval_11-May-2012.tar", "6cd6e144f989b92b3379bac3b3de84fd", "VOC2012"),
    ),
}


def fetch(name: str, data_dir: str | os.PathLike[str] | None = None, bar: Bar | None = None) -> list[str]:
    """Download what is not there yet, check it and unpack it into DATA/VOCdevkit; the names of what was fetched.

    An archive stays until it is unpacked whole, so that a fetch that was stopped goes on from there.
    """
    folder, fetched = datasets.data_folder(data_dir), []
    for archive in ARCHIVES[name]:
        if (folder / "VOCdevkit" / archive.folder / _mark(archive)).is_file():
            continue
        packed = folder / "voc" / archive.name
        retrieve(name, archive.url, packed, f"md5:{archive.md5}", bar, otherwise=OTHERWISE)
        with records.readable_errors(folder):
            unpack(packed, archive, folder)
            packed.unlink()
        fetched.append(archive.name)
    return fetched


def is_here(name: str, data_dir: str | os.PathLike[str] | None = None) -> Sequence[bool]:
    """Of each archive, whether it was fetched."""
    devkit = datasets.data_folder(data_dir) / "VOCdevkit"
    return [(devkit / archive.folder / _mark(archive)).is_file() for archive in ARCHIVES[name]]


def _mark(archive: Archive) -> str:
    """A file that says that the archive is unpacked whole."""
    return f".{archive.name}.unpacked"


def unpack(packed: Path, archive: Archive, folder: Path) -> None:
    """Write what a detector needs of an archive: only plain files at the places where a devkit has them."""
    wanted = re.compile(rf"VOCdevkit/{archive.folder}/(Annotations|ImageSets/Main|JPEGImages)/\w[\w.-]*")
    try:
        with tarfile.open(packed, "r:") as tar:
            for member in tar:
                if member.isreg() and wanted.fullmatch(member.name) and (stream := tar.extractfile(member)):
                    target = folder / member.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(stream.read())
    except tarfile.TarError as error:
        raise ValueError(f"{packed} cannot be unpacked ({error}): delete it, and fetch it again") from error
    mark = folder / "VOCdevkit" / archive.folder / _mark(archive)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
