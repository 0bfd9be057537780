"""A detector that was trained: read from its run's folder, and put to use."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw

from cissl import records
from cissl.detection.average_precision import Found
from cissl.detection.data import Picture
from cissl.detection.data import read as read_picture
from cissl.detection.description import DetectionRun
from cissl.detection.evaluation import find
from cissl.detection.ssd import SSD
from cissl.detection.training import network

DETECTIONS = "detections.json"
COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#f032e6", "#9a6324", "#800000", "#000075")


@dataclass
class Trained:
    run: DetectionRun
    network: SSD
    class_names: tuple[str, ...]
    labeled_counts: list[int]


def read(folder: Path, device: str = "cpu") -> Trained:
    """The detector in a run's folder, ready to be used."""
    result = records.read_result(folder)
    if result is None:
        raise ValueError(
            f"there is no finished run in {folder}: give the --out of `cissl detect train`, when it is done"
        )
    if "class_names" not in result or "backbone" not in result["run"]:
        raise ValueError(f"the run in {folder} trained no detector: give the --out of `cissl detect train`")
    if result["status"] == "diverged":
        raise ValueError(f"the run in {folder} diverged at step {result['diverged_at']}: there is no detector to use")
    run = DetectionRun(**result["run"])
    made = network(run, len(result["class_names"]))
    try:
        with np.load(folder / "weights.npz", allow_pickle=False) as saved:
            made.load_state_dict({name: torch.from_numpy(saved[f"student/{name}"]) for name in made.state_dict()})
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ValueError(f"{folder / 'weights.npz'} cannot be used ({error}): train the run anew") from error
    return Trained(run, made.to(device).eval(), tuple(result["class_names"]), list(result["labeled_counts"]))


def predict(trained: Trained, pictures: Sequence[Picture], out: Path, score: float, draw: bool) -> tuple[int, Path]:
    """Write what is found with at least that score; the number of objects, and the file."""
    images = []
    for picture, found in zip(pictures, find(trained.network, pictures), strict=True):
        image = read_picture(picture)
        objects = _objects(found, image.shape[1], image.shape[0], trained.class_names, score)
        images.append({"file": picture.name, "width": image.shape[1], "height": image.shape[0], "objects": objects})
        if draw:
            target = out / Path(picture.name).with_suffix(".png")
            target.parent.mkdir(parents=True, exist_ok=True)
            drawn(Image.fromarray(image), objects, trained.class_names).save(target)
    written = out / DETECTIONS
    records.write_json(written, {"class_names": list(trained.class_names), "images": images})
    return sum(len(image["objects"]) for image in images), written


def _objects(found: Found, width: int, height: int, names: Sequence[str], score: float) -> list[dict[str, Any]]:
    """Boxes in pixels, within the picture, the surest first."""
    boxes = np.clip(found.boxes, 0, 1) * (width, height, width, height)
    return [
        {"class": names[known], "score": round(float(sure), 4), "box": [round(float(side), 1) for side in box]}
        for box, sure, known in zip(boxes, found.scores, found.classes, strict=True)
        if sure >= score
    ]


def drawn(image: Image.Image, objects: Sequence[dict[str, Any]], names: Sequence[str]) -> Image.Image:
    """The picture with each object's box, class and score."""
    draw, thick = ImageDraw.Draw(image), max(1, round(min(image.size) / 150))
    for found in reversed(objects):  # the surest on top
        colour = COLOURS[names.index(found["class"]) % len(COLOURS)]
        x0, y0, x1, y1 = found["box"]
        draw.rectangle((x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), outline=colour, width=thick)
        text = f"{found['class']} {found['score']:.2f}"
        place = (x0 + thick, y0 + thick)
        draw.rectangle(draw.textbbox(place, text), fill=colour)
        draw.text(place, text, fill="white")
    return image
