"""Annotations as COCO writes them: one JSON file with images, categories, and boxes as (x, y, width, height)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cissl.detection.data import NO_BOXES, DetectionData, Picture, unannotated


def load(files: Mapping[str, str]) -> DetectionData:
    """`files` names the annotations of the "labeled" pictures, of the "test" pictures if there are any, the "unlabeled"
    pictures, a folder or annotations, of which only the list of pictures is used, and the folder of the "images"."""
    images = Path(files["images"])
    names, labeled = annotated(Path(files["labeled"]), images)
    test, unlabeled = list[Picture](), list[Picture]()
    if files.get("test"):
        theirs, test = annotated(Path(files["test"]), images)
        if theirs != names:
            raise ValueError(
                f"{files['test']} has the categories {', '.join(theirs)}; {files['labeled']} has {', '.join(names)}: "
                "give both the same ones"
            )
    if files.get("unlabeled"):
        place = Path(files["unlabeled"])
        unlabeled = unannotated(place) if place.is_dir() else annotated(place, images)[1]
    return DetectionData("coco", names, labeled, unlabeled, test)


def annotated(path: Path, images: Path) -> tuple[tuple[str, ...], list[Picture]]:
    """The categories' names, in the order of their numbers, and the pictures. Crowds count as difficult objects."""
    content = _json(path)
    categories = sorted(_rows(content, "categories", path), key=lambda row: row.get("id", 0))
    names = tuple(str(_field(row, "name", path)) for row in categories)
    classes = {_field(row, "id", path): place for place, row in enumerate(categories)}
    rows = {_field(row, "id", path): row for row in _rows(content, "images", path)}
    objects: dict[Any, list[tuple[list[float], int, bool]]] = {number: [] for number in rows}
    for annotation in _rows(content, "annotations", path, needed=False):
        number, category = _field(annotation, "image_id", path), _field(annotation, "category_id", path)
        if number not in objects or category not in classes:
            what = f"image {number}" if number not in objects else f"category {category}"
            raise ValueError(f"{path}: an annotation is of {what}, which the file does not have")
        box = _corners(_field(annotation, "bbox", path), path)
        objects[number].append((box, classes[category], bool(annotation.get("iscrowd", 0))))
    return names, [_picture(row, objects[number], path, images) for number, row in rows.items()]


def _picture(row: Mapping[str, Any], objects: list[tuple[list[float], int, bool]], path: Path, images: Path) -> Picture:
    file = images / str(_field(row, "file_name", path))
    if not file.is_file():
        raise ValueError(
            f"there is no picture {file}, which {path} lists: give the folder of the pictures with --images"
        )
    return Picture(
        str(row["file_name"]),
        file,
        np.array([box for box, _, _ in objects]) if objects else NO_BOXES,
        np.array([known for _, known, _ in objects], dtype=np.int64),
        np.array([crowd for _, _, crowd in objects], dtype=bool),
    )


def _corners(box: Any, path: Path) -> list[float]:
    try:
        x, y, width, height = map(float, box)
    except (TypeError, ValueError):
        raise ValueError(f"{path}: expected a bbox as [x, y, width, height], got {box!r}") from None
    if not np.isfinite([x, y, width, height]).all() or width < 0 or height < 0:
        raise ValueError(f"{path}: a bbox needs finite numbers, width and height not below 0, got {box!r}")
    return [x, y, x + width, y + height]


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(
            f"there is no {path}: give the path of a JSON file with annotations as COCO writes them"
        ) from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is no JSON that can be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(
            f"{path}: expected an object with images, categories and annotations, got {type(content).__name__}"
        )
    return content


def _rows(content: Mapping[str, Any], key: str, path: Path, needed: bool = True) -> list[dict[str, Any]]:
    rows = content.get(key, [] if not needed else None)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows) or (needed and not rows):
        raise ValueError(f"{path}: expected a list of objects under {key!r}, as COCO writes them")
    return rows


def _field(row: Mapping[str, Any], key: str, path: Path) -> Any:
    if key not in row:
        raise ValueError(f"{path}: {json.dumps(row)[:80]} lacks {key!r}, which COCO's annotations have")
    return row[key]
