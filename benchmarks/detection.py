"""Images per second of training and of using a detector, against a bare forward and backward of the same network.

    python benchmarks/detection.py [--backbone vgg16] [--method csd+scl] [--batch 8] [--steps 2] [--rounds 5]

Training is everything that a step takes: pictures augmented, matched, both losses, the consistency, the optimizer, in
the loop that trains every run. Bare is the same network on as many images, a sum of its outputs as the loss, and the
same optimizer. Finding is resize, forward, NMS; its bare counterpart the forward alone. All take turns, so that
whatever else the machine does hits them alike; each number is the median round, on one thread. Prints one JSON line.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, get_args

import numpy as np
import torch

from cissl.detection import evaluation, shapes
from cissl.detection.data import DetectionData, Picture
from cissl.detection.description import DetectionRun, Method
from cissl.detection.training import METHODS, assemble
from cissl.execution import hardware
from cissl.training import EagerLearner, sgd, train


def photographs(count: int, generator: np.random.Generator) -> list[Picture]:
    """Pictures of the size of VOC's, with three objects each; their content does not matter to the time."""
    image = generator.integers(0, 256, (375, 500, 3), dtype=np.uint8)
    boxes = np.array([[20.0, 30, 200, 300], [210, 40, 480, 360], [100, 100, 160, 180]])
    return [Picture(str(n), image, boxes, np.arange(3), np.zeros(3, dtype=bool)) for n in range(count)]


def library(task: Any, run: DetectionRun) -> Iterator[Any]:
    """Training as a run does it."""
    step = task.step(None)
    optimizer = sgd(step.parameters(), run.learning_rate, run.momentum, run.weight_decay, run.nesterov)
    steps = range(task.batches.first_steps + 1, 10**9)
    return train(EagerLearner(step, list(step.parameters())), optimizer, task.batches, run.rate, steps)


def bare(network: Any, images: torch.Tensor, run: DetectionRun) -> Iterator[Any]:
    """Forward, backward and the optimizer's step on images that lie ready."""
    optimizer = sgd(network.parameters(), 0.0, run.momentum, 0.0, run.nesterov)
    while True:
        class_logits, offsets = network(images)
        optimizer.zero_grad(set_to_none=True)
        (class_logits.square().mean() + offsets.square().mean()).backward()
        optimizer.step()
        yield None


@torch.no_grad()
def forward(network: Any, images: torch.Tensor) -> None:
    """The network alone, as it is used."""
    network.eval()
    network(images)
    network.train()


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall time and CPU time of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Measure in turns, and print the line."""
    parser = argparse.ArgumentParser(description="Speed of detection")
    parser.add_argument("--backbone", choices=("vgg16", "small"), default="small")
    parser.add_argument("--method", choices=get_args(Method), default="csd+scl")
    parser.add_argument("--batch", type=int, default=8, help="pictures of a step, and of finding")
    parser.add_argument("--steps", type=int, default=4, help="steps of each in a round")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(1)
    pictures = photographs(4 * given.batch, np.random.default_rng(0))
    data = DetectionData("photographs", shapes.CLASSES, pictures[: given.batch], pictures[given.batch :], [])
    run = DetectionRun(
        dataset="shapes", backbone=given.backbone, method=given.method, batch=given.batch, weights=None,
        augmentation="ssd",
    )  # fmt: skip
    task, other = assemble(run, data), assemble(run, data)
    passes = 1 if METHODS[given.method] == METHODS["supervised"] else 2
    images = torch.cat([task.batches.step(1)["images"]] * passes).float()
    loops = {"training": library(task, run), "bare_training": bare(other.student, images, run)}
    few, ready = pictures[: given.batch], images[: given.batch]
    ways: dict[str, tuple[Callable[[], object], int]] = {
        name: (lambda loop=loop: [next(loop) for _ in range(given.steps)], given.steps) for name, loop in loops.items()
    }
    ways["finding"] = lambda: list(evaluation.find(other.student, few)), 1
    ways["bare_finding"] = lambda: forward(other.student, ready), 1
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(given.rounds + 1):
        for name, (work, _) in ways.items():
            measured = seconds(work)
            if number:  # the first round warms up
                seen[name].append(measured)
    line: dict[str, Any] = {
        "benchmark": "detection", "backbone": given.backbone, "method": given.method, "batch": given.batch,
    }  # fmt: skip
    cpu = {name: statistics.median(measured[1] for measured in seen[name]) / ways[name][1] for name in ways}
    for name in ways:
        wall = statistics.median(measured[0] for measured in seen[name]) / ways[name][1]
        line[f"{name}_images_per_second"] = round(given.batch / wall, 2)
        line[f"{name}_images_per_cpu_second"] = round(given.batch / cpu[name], 2)
    line["training_overhead"] = round(cpu["training"] / cpu["bare_training"] - 1, 3)
    line["finding_overhead"] = round(cpu["finding"] / cpu["bare_finding"] - 1, 3)
    line |= {"hardware": hardware(torch.device("cpu")), "torch": torch.__version__, "python": platform.python_version()}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
