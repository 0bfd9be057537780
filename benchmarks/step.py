"""One MT+SCL step on WRN-28-2 (50 labeled + 50 unlabeled) through the training loop, against a bare hand-written loop.

The two take turns within this process, on random images of CIFAR-10's shape. Prints one JSON line: milliseconds per
step by process CPU time and by wall time, `overhead_float32` (0.02: the training loop takes 2 % more CPU time than the
bare one), and what bf16-mixed gains. On a GPU wall time is what counts, and CUDA graphs are measured as well.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric

from cissl import networks
from cissl.batches import Batches
from cissl.execution import ExactInputs, hardware
from cissl.losses import suppression_weights
from cissl.methods import method
from cissl.objective import Step
from cissl.schedules import learning_rate, ramp
from cissl.training import Average, EagerLearner, GraphLearner, sgd, train
from cissl.views import Views

LABELED, UNLABELED, STEPS = 50, 50, 500_000
COUNTS = [1611, 966, 579, 347, 208, 125, 75, 45, 27, 17]
VIEW = Views(flip=True, crop=2, noise=0.15)
Losses = Callable[[], Any]


def data(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((4000, 3, 32, 32), generator=generator)
    return x.to(device), torch.randint(10, (4000,), generator=generator).to(device)


def network(device: torch.device) -> torch.nn.Module:
    built = networks.build("wide-resnet-28-2", (3, 32, 32), 10, torch.Generator().manual_seed(1))
    return built.to(device, memory_format=torch.channels_last)


def library(fabric: Fabric, graphs: bool = False) -> Iterator[Any]:
    """Our loop, put together as `cissl train` does."""
    x, y = data(fabric.device)
    student, teacher = network(fabric.device), network(fabric.device).requires_grad_(False)
    teacher.load_state_dict(student.state_dict())
    made = method("mean-teacher+scl")
    batches = Batches(
        x=x,
        labels=y,
        labeled=np.arange(1000),
        unlabeled=np.arange(1000, 4000),
        labeled_batch=LABELED,
        unlabeled_batch=UNLABELED,
        seed=0,
        view=VIEW,
        second_view=True,
        draws=made.draws,
        ramp=lambda step: ramp(step, 0.4 * STEPS),
        constants={"suppression": suppression_weights(COUNTS).to(fabric.device)},
    )
    optimizer = sgd(student.parameters(), 0.1, 0.9, 1e-4)
    step = fabric.setup(Step(made, "ce", student, teacher), optimizer)[0]
    kind = GraphLearner if graphs else EagerLearner
    learner = kind(step, list(student.parameters()), fabric.backward, [student, teacher])
    average = Average(teacher.parameters(), student.parameters(), 0.95)
    rate = lambda step: 0.1 * learning_rate("cosine", step, STEPS)  # noqa: E731
    return train(learner, optimizer, batches, rate, range(1, STEPS + 1), average)


def bare(device: torch.device) -> Iterator[Any]:
    """The same mathematics, as one would write it for this one purpose."""
    x, y = data(device)
    student, teacher = network(device), network(device)
    teacher.load_state_dict(student.state_dict())
    suppression = suppression_weights(COUNTS).to(device)
    optimizer = torch.optim.SGD(
        student.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4, foreach=True
    )
    generator = torch.Generator(device).manual_seed(0)
    students, teachers = list(student.parameters()), list(teacher.parameters())
    order = torch.Generator().manual_seed(0)
    for step in range(1, STEPS + 1):
        labeled = torch.randint(1000, (LABELED,), generator=order).to(device)
        unlabeled = torch.randint(1000, 4000, (UNLABELED,), generator=order).to(device)
        samples, labels = x[torch.cat([labeled, unlabeled])], y[labeled]
        first = VIEW(samples, generator).contiguous(memory_format=torch.channels_last)
        second = VIEW(samples, generator).contiguous(memory_format=torch.channels_last)
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * learning_rate("cosine", step, STEPS)
        logits = student(first)
        with torch.no_grad():
            target = teacher(second)[LABELED:].softmax(1)
        said = logits[LABELED:]
        consistency = (said.softmax(1) - target).square().mean(1) * suppression[said.argmax(1)]
        loss = F.cross_entropy(logits[:LABELED], labels, reduction="sum") / 100
        loss = loss + 8 * ramp(step, 0.4 * STEPS) * consistency.sum() / 100
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(teachers, students, 1 - min(1 - 1 / (step + 1), 0.95))
        yield loss.detach()


def measure(
    loops: dict[str, Iterator[Any]], rounds: int, steps: int, device: torch.device
) -> dict[str, dict[str, float]]:
    """Median milliseconds per step, a few steps of each in turn; the first round only warms up."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in loops}
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for number in range(rounds + 1):
        names = list(loops)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            wait()
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(steps):
                next(loops[name])
            wait()
            if number:
                seen[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    return {
        name: {
            "cpu_ms": round(1e3 * statistics.median(cpu for cpu, _ in times) / steps, 3),
            "wall_ms": round(1e3 * statistics.median(wall for _, wall in times) / steps, 3),
        }
        for name, times in seen.items()
    }


def ratio(times: dict[str, dict[str, float]], above: str, below: str, kind: str) -> float:
    return round(times[above][kind] / times[below][kind], 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="accepted for clarity: the output is one JSON line anyway")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=4, help="steps of each loop in a round")
    parser.add_argument("--threads", type=int, default=None, help="of the processor; default: torch's")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    plain = Fabric(accelerator=accelerator, devices=1)
    mixed = Fabric(accelerator=accelerator, devices=1, plugins=[ExactInputs("bf16-mixed", accelerator)])
    loops = {"bare": bare(plain.device), "library": library(plain), "library_bf16": library(mixed)}
    if accelerator == "cuda":
        loops |= {"graphs": library(plain, True), "graphs_bf16": library(mixed, True)}
    times = measure(loops, arguments.rounds, arguments.steps, plain.device)
    kind = "wall_ms" if accelerator == "cuda" else "cpu_ms"
    report: dict[str, Any] = {
        "benchmark": "step",
        "overhead_float32": round(ratio(times, "library", "bare", kind) - 1, 4),
        "overhead_float32_wall": round(ratio(times, "library", "bare", "wall_ms") - 1, 4),
        "bf16_speedup": ratio(times, "library", "library_bf16", kind),
        "bf16_speedup_wall": ratio(times, "library", "library_bf16", "wall_ms"),
    }
    if accelerator == "cuda":
        report["graphs_speedup"] = ratio(times, "library", "graphs", "wall_ms")
        report["graphs_bf16_speedup"] = ratio(times, "library", "graphs_bf16", "wall_ms")
    report |= {
        "times": times,
        "hardware": hardware(plain.device),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
