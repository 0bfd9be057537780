"""How good detections are: VOC's average precision per class, and COCO's."""

import contextlib
import io
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class Found(NamedTuple):
    """What a detector found in one image."""

    boxes: Float[np.ndarray, "d 4"]  # corners
    scores: Float[np.ndarray, " d"]
    classes: Int[np.ndarray, " d"]


class Truth(NamedTuple):
    """What is in it. A difficult object is neither missed nor found: what matches it does not count at all."""

    boxes: Float[np.ndarray, "m 4"]  # corners
    classes: Int[np.ndarray, " m"]
    difficult: Bool[np.ndarray, " m"]


def average_precision(
    found: Sequence[Found],
    truth: Sequence[Truth],
    classes: int,
    overlap: float = 0.5,
    points: Literal["11", "all"] = "11",
) -> Float[np.ndarray, " classes"]:
    """Average precision of each class over all images; NaN for a class without an object that counts.

    "11" is VOC2007's mean over the recalls 0, 0.1, …, 1, "all" the area under the falling envelope, as VOC from 2010.
    """
    if len(found) != len(truth):
        raise ValueError(f"expected what was found and the truth of the same images, got {len(found)} and {len(truth)}")
    if points not in ("11", "all"):
        raise ValueError(f"points should be '11' or 'all', got {points!r}")
    under = _eleven_points if points == "11" else _area
    return np.array([under(*_of_class(found, truth, c, overlap)) for c in range(classes)])


def mean_average_precision(of_classes: Float[np.ndarray, " classes"]) -> float:
    """mAP: the mean over the classes that have an object; NaN if none has."""
    known = of_classes[~np.isnan(of_classes)]
    return float(known.mean()) if len(known) else float("nan")


def _of_class(
    found: Sequence[Found], truth: Sequence[Truth], c: int, overlap: float
) -> tuple[Bool[np.ndarray, " d"], int]:
    """Whether each detection that counts is a hit, by falling score, and how many objects there are to find.

    Each detection belongs to the object that it overlaps most. Is that at least `overlap`, then the first one of an
    object is a hit and its others are false alarms; those of a difficult object are left out.
    """
    scores, hits, objects = [], [], 0
    for image, real in zip(found, truth, strict=True):
        mine, there = image.classes == c, real.classes == c
        order = np.argsort(-image.scores[mine], kind="stable")
        hit, counts = _hits(image.boxes[mine][order], real.boxes[there], real.difficult[there], overlap)
        scores.append(image.scores[mine][order][counts])
        hits.append(hit[counts])
        objects += int((~real.difficult[there]).sum())
    if not scores:
        return np.zeros(0, bool), 0
    return np.concatenate(hits)[np.argsort(-np.concatenate(scores), kind="stable")], objects


def _hits(
    boxes: Float[np.ndarray, "d 4"],
    objects: Float[np.ndarray, "m 4"],
    difficult: Bool[np.ndarray, " m"],
    overlap: float,
) -> tuple[Bool[np.ndarray, " d"], Bool[np.ndarray, " d"]]:
    """Whether each detection of an image, by falling score, is a hit, and whether it counts."""
    if len(objects) == 0 or len(boxes) == 0:
        return np.zeros(len(boxes), bool), np.ones(len(boxes), bool)
    shared = _overlaps(boxes, objects)
    nearest = shared.argmax(1)
    close = shared[np.arange(len(boxes)), nearest] >= overlap
    first = np.zeros(len(boxes), bool)
    first[np.flatnonzero(close)[np.unique(nearest[close], return_index=True)[1]]] = True
    return first, ~(close & difficult[nearest])


def _overlaps(a: Float[np.ndarray, "n 4"], b: Float[np.ndarray, "m 4"]) -> Float[np.ndarray, "n m"]:
    """Intersection over union; 0 where neither box has an area."""
    sides = np.minimum(a[:, None, 2:], b[:, 2:]) - np.maximum(a[:, None, :2], b[:, :2])
    both = sides.clip(0).prod(2)
    areas_a, areas_b = ((boxes[:, 2:] - boxes[:, :2]).clip(0).prod(1) for boxes in (a, b))
    either = areas_a[:, None] + areas_b - both
    return np.asarray(both / np.where(either > 0, either, 1))


def _eleven_points(hits: Bool[np.ndarray, " d"], objects: int) -> float:
    if objects == 0:
        return float("nan")
    # In whole numbers: 3 hits of 10 objects reach a recall of 0.3, whatever 0.3 is in binary.
    reached = np.searchsorted(10 * hits.cumsum(), np.arange(11) * objects)
    return float(np.append(_envelope(hits), 0.0)[reached].mean())


def _area(hits: Bool[np.ndarray, " d"], objects: int) -> float:
    if objects == 0:
        return float("nan")
    return float(_envelope(hits)[hits].sum() / objects)  # recall grows by 1 / objects with each hit


def _envelope(hits: Bool[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """The best precision from each detection on."""
    precision = hits.cumsum() / np.arange(1, len(hits) + 1)
    return np.maximum.accumulate(precision[::-1])[::-1]


# ---- COCO

COCO_NAMES = {
    "ap": "AP_all",
    "ap50": "AP_50",
    "ap75": "AP_75",
    "ap_small": "AP_small",
    "ap_medium": "AP_medium",
    "ap_large": "AP_large",
}


def coco_average_precision(
    found: Sequence[Found], truth: Sequence[Truth], sizes: Sequence[tuple[int, int]], classes: int
) -> dict[str, float]:
    """COCO's average precisions by faster-coco-eval (extra `detection`): mean over overlaps from 0.5 to 0.95 ("ap"), at
    0.5 and 0.75 ("ap50", "ap75"), and of objects by their area ("ap_small", "ap_medium", "ap_large"); NaN if none is.

    `sizes` are the images' (width, height) in pixels; difficult objects are ignored as crowds are.
    """
    try:
        from faster_coco_eval import COCO, COCOeval_faster
    except ImportError:
        raise ValueError("COCO's average precision needs faster-coco-eval: pip install 'cissl[detection]'") from None
    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for number, (image, real, size) in enumerate(zip(found, truth, sizes, strict=True), start=1):
        for box, c, difficult in zip(_in_pixels(real.boxes, size), real.classes, real.difficult, strict=True):
            known = {"id": len(annotations) + 1, "area": box[2] * box[3], "iscrowd": int(difficult)}
            annotations.append({"image_id": number, "category_id": int(c) + 1, "bbox": box, **known})
        for box, score, c in zip(_in_pixels(image.boxes, size), image.scores, image.classes, strict=True):
            results.append({"image_id": number, "category_id": int(c) + 1, "bbox": box, "score": float(score)})
    images = [{"id": number, "width": w, "height": h} for number, (w, h) in enumerate(sizes, start=1)]
    categories = [{"id": c + 1, "name": str(c)} for c in range(classes)]
    real = COCO({"images": images, "annotations": annotations, "categories": categories})
    evaluation = COCOeval_faster(real, real.loadRes(results), "bbox")
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.run()
    measured = evaluation.stats_as_dict
    return {name: _or_nan(measured[theirs]) for name, theirs in COCO_NAMES.items()}


def _in_pixels(boxes: Float[np.ndarray, "n 4"], size: tuple[int, int]) -> list[list[float]]:
    """Corner and sides, as COCO has it."""
    x0, y0, x1, y1 = (boxes.astype(np.float64) * np.tile(size, 2)).T
    pixels: list[list[float]] = np.stack([x0, y0, x1 - x0, y1 - y0], 1).tolist()
    return pixels


def _or_nan(value: float) -> float:
    return float("nan") if value < 0 else float(value)
