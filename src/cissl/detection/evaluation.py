"""What a detector finds in pictures, and how good that is."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from cissl.detection.augment import resize
from cissl.detection.average_precision import (
    Found,
    Truth,
    average_precision,
    coco_average_precision,
    mean_average_precision,
)
from cissl.detection.data import Picture, Reader, relative
from cissl.detection.nms import detections
from cissl.detection.ssd import SSD
from cissl.names import unknown
from cissl.networks import evaluating

AT_ONCE = 32  # pictures
Metric = Literal["voc07", "voc", "coco"]


@torch.no_grad()
def find(network: SSD, pictures: Sequence[Picture], read: Reader | None = None) -> Iterator[Found]:
    """What the network finds in each picture, boxes relative to it. FloatingPointError where it says no numbers."""
    read, device = read or Reader(), network.priors.device
    for first in range(0, len(pictures), AT_ONCE):
        images = np.stack([resize(read(picture), network.size) for picture in pictures[first : first + AT_ONCE]])
        with evaluating(network):
            batch = torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float()
            class_logits, offsets = (said.float() for said in network(batch))
        if not (class_logits.isfinite().all() and offsets.isfinite().all()):
            raise FloatingPointError("the network says no numbers")
        for found in detections(class_logits, offsets, network.priors):
            boxes, scores, classes = (part.cpu().numpy() for part in found)
            yield Found(boxes, scores, classes)


def truth(pictures: Sequence[Picture], read: Reader | None = None) -> list[Truth]:
    """The objects of pictures, boxes relative to them."""
    read = read or Reader()
    return [
        Truth(relative(picture.boxes, read(picture)).astype(np.float32), picture.classes, picture.difficult)
        for picture in pictures
    ]


def evaluate(found: Sequence[Found], wanted: Sequence[Truth], counts: Sequence[int], metric: Metric) -> dict[str, Any]:
    """Average precision as fractions, ready for JSON: of each class, None for one that is nowhere, and means.

    `counts` are those of the labeled objects: they say which classes are frequent and which are rare.
    """
    points: Literal["11", "all"] = "11" if metric == "voc07" else "all"
    of_classes = average_precision(found, wanted, len(counts), points=points)
    ranked = np.argsort(-np.asarray(counts), kind="stable")
    third = (len(counts) + 1) // 3
    groups = {"major": ranked[:1], "minor": ranked[-1:], "head": ranked[:third], "tail": ranked[-third:]}
    return {
        "metric": metric,
        "map": _number(mean_average_precision(of_classes)),
        "average_precision": [_number(precision) for precision in of_classes.tolist()],
        # Equally frequent: the major class is the first of them, the minor class the last. Head and tail: thirds.
        **{f"{name}_ap": _number(mean_average_precision(of_classes[group])) for name, group in groups.items()},
    }


def evaluate_coco(
    found: Sequence[Found],
    wanted: Sequence[Truth],
    pictures: Sequence[Picture],
    classes: int,
    read: Reader | None = None,
) -> dict[str, float | None]:
    """COCO's average precisions, by faster-coco-eval."""
    read = read or Reader()
    sizes = [(image.shape[1], image.shape[0]) for image in map(read, pictures)]
    return {name: _number(value) for name, value in coco_average_precision(found, wanted, sizes, classes).items()}


def check_metric(metric: str) -> None:
    if metric not in get_args(Metric):
        raise unknown("metric", metric, get_args(Metric))


def _number(value: float | npt.NDArray[Any]) -> float | None:
    return None if math.isnan(value) else float(value)
