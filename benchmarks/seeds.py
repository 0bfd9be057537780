"""A step of one run against a step of 5 and of 20 seeds at once, on one thread. Prints one JSON line.

`ratio_20` says how many times faster 20 seeds at once are than the same 20 runs one after the other in this process.
All are measured in turns, so that whatever else the machine does hits them alike; the median round counts, and the
ratios are of CPU time. Every run is the paper's on two-moons, trained by the very loop that `cissl run toy` uses.
"""

import argparse
import itertools
import json
import platform
import statistics
import time
from collections.abc import Iterator

import torch

from cissl.batches import StackedBatches
from cissl.many_seeds import ManySeeds
from cissl.objective import Step
from cissl.run import Run
from cissl.task import prepare
from cissl.training import Average, EagerLearner, Record, sgd, train

STEPS = 100  # of a round: as many as batches are drawn at once, so that each round pays for one drawing
SEEDS = (5, 20)
SAME_STEPS = 10  # for which the compiled losses have to equal the eager ones


def one(run: Run) -> Iterator[Record]:
    """The steps of a run on its own, as `cissl.execute` takes them."""
    task = prepare(run)
    teacher, parameters = task.teacher(), list(task.student.parameters())
    learner = EagerLearner(Step(run.made, run.reweight, task.student, teacher), parameters)
    optimizer = sgd(parameters, run.learning_rate, run.momentum, run.weight_decay)
    decay = run.made.teacher_decay
    average = Average(teacher.parameters(), parameters, decay) if teacher is not None and decay is not None else None
    return train(learner, optimizer, task.batches, run.rate, itertools.count(1), average)


def many(runs: list[Run], *, compiled: bool = False) -> tuple[ManySeeds, Iterator[Record]]:
    """The steps of many runs at once, as `cissl.execute_seeds` takes them."""
    run, tasks = runs[0], [prepare(run) for run in runs]
    learner = ManySeeds(run.made, run.reweight, [task.student for task in tasks], compiled=compiled)
    students, teachers, decay = learner.student.values(), learner.teacher.values(), run.made.teacher_decay
    optimizer = sgd(students, run.learning_rate, run.momentum, run.weight_decay)
    average = Average(teachers, students, decay) if decay is not None else None
    batches = StackedBatches([task.batches for task in tasks])
    return learner, train(learner, optimizer, batches, run.rate, itertools.count(1), average)


def losses(steps: Iterator[Record]) -> torch.Tensor:
    """Those of the first few steps."""
    return torch.stack([record.losses["loss"] for record in itertools.islice(steps, SAME_STEPS)])


def compiled(runs: list[Run]) -> tuple[float, Iterator[Record]]:
    """The seconds that compiling took, and the steps; an error if they are not those of the eager model."""
    learner, steps = many(runs, compiled=True)
    torch.testing.assert_close(losses(steps), losses(many(runs)[1]))
    assert learner.compile_seconds is not None
    return learner.compile_seconds, steps


def milliseconds(steps: Iterator[Record]) -> tuple[float, float]:
    """CPU and wall time of a step."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in itertools.islice(steps, STEPS):
        pass
    return (time.process_time() - cpu) / STEPS * 1e3, (time.perf_counter() - wall) / STEPS * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", default="mean-teacher+scl")
    parser.add_argument("--compile", action="store_true", help="also through torch.compile, which takes seconds")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = [Run(dataset="two-moons", method=options.method, seed=seed) for seed in range(max(SEEDS))]

    contenders = {"1": one(runs[0])} | {str(n): many(runs[:n])[1] for n in SEEDS}
    line: dict[str, object] = {"benchmark": "seeds", "method": options.method, "threads": 1, "cpu": platform.machine()}
    if options.compile:
        seconds = {}
        for n in SEEDS:
            seconds[n], contenders[f"{n}_compiled"] = compiled(runs[:n])
        line["compile_seconds"] = {n: round(s, 1) for n, s in seconds.items()}

    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for number in range(options.rounds + 1):
        for name, steps in contenders.items():
            took = milliseconds(steps)
            if number:  # the first round warms up
                measured[name].append(took)

    cpu, wall = ({n: statistics.median(took[i] for took in all_) for n, all_ in measured.items()} for i in (0, 1))
    for name in contenders:
        if name != "1":
            line[f"ratio_{name}"] = round(int(name.split("_")[0]) * cpu["1"] / cpu[name], 2)
    line["cpu_ms_per_step"] = {name: round(ms, 3) for name, ms in cpu.items()}
    line["wall_ms_per_step"] = {name: round(ms, 3) for name, ms in wall.items()}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
