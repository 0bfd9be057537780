"""How long NMS and whole detections of one image take, against going from box to box.

    python benchmarks/nms.py [--repeat 20]

NMS: 20 classes of 200 boxes each, in heaps as a detector makes them around its objects. Detections: from the outputs
of SSD300, 8,732 priors, to at most 200 boxes. Each number is CPU time on one thread, the median of the rounds, in which
the ways take turns. Prints one JSON line.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from cissl.detection import boxes, nms, priors


def heaps(classes: int, each: int, generator: torch.Generator) -> Tensor:
    """Boxes of each class around ten objects, by falling score."""
    objects = 0.1 + 0.8 * torch.rand(classes, 10, 4, generator=generator) * torch.tensor([1, 1, 0.4, 0.4])
    near = objects.repeat_interleave(each // 10, 1)[:, torch.randperm(each, generator=generator)]
    return boxes.to_corners(near + 0.02 * torch.randn(near.shape, generator=generator)).clamp(0, 1)


def one_by_one(corners: Tensor, overlap: float = 0.45) -> list[int]:
    """Each box against those that were kept, the overlaps of one box at once."""
    kept: list[int] = []
    for i in range(len(corners)):
        if not kept or bool((boxes.iou(corners[i : i + 1], corners[kept]) <= overlap).all()):
            kept.append(i)
    return kept


def seconds(work: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Measure, and print the line."""
    parser = argparse.ArgumentParser(description="Time of NMS and of detections")
    parser.add_argument("--repeat", type=int, default=20, help="how many rounds")
    repeat = parser.parse_args().repeat
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    corners = heaps(20, 200, generator)
    logits, offsets = 2 * torch.randn(1, 8732, 21, generator=generator), torch.randn(1, 8732, 4, generator=generator)
    made = priors.ssd300()
    kept = nms.batched_nms(corners)
    assert [row.nonzero()[:, 0].tolist() for row in kept] == [one_by_one(of_class) for of_class in corners]
    ways: dict[str, Callable[[], object]] = {
        "batched_nms_ms": lambda: nms.batched_nms(corners),
        "one_by_one_ms": lambda: [one_by_one(of_class) for of_class in corners],
        "detections_ms": lambda: nms.detections(logits, offsets, made),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeat):
        for name, work in ways.items():
            times[name].append(1000 * seconds(work))
    measured = {name: round(statistics.median(of), 2) for name, of in times.items()}
    result = {
        "benchmark": Path(__file__).stem,
        **measured,
        "speedup": round(measured["one_by_one_ms"] / measured["batched_nms_ms"], 1),
        "boxes_kept": int(kept.sum()),
        "machine": platform.machine(),
        "torch": torch.__version__,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
