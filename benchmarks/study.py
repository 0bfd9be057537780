"""What a study costs beyond the training of its runs. Prints one JSON line.

200 tiny runs: one after the other in this process with nothing written (half of them before the study, half after it),
then as a study by one worker and by two, with leases, logs and results on the disk. `overhead_ms` is what the study by
one worker took longer for each run, starting the worker included; `two_workers` is the wall time of two over that of
one.
"""

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from cissl import Run, execute
from cissl.processes import Processes
from cissl.study import execute_study


def tiny(count: int, steps: int) -> list[Run]:
    """Runs that train one by one, each with a convolutional network, an evaluation and weights to write."""
    fields = {"dataset": "digits", "method": "mean-teacher+scl", "validations": 0}
    return [Run(**fields, steps=steps, seed=seed) for seed in range(count)]


def measured(what: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the wall, and of processors, of this process and of those that it started and waited for."""

    def processors() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)

    wall, cpu = time.perf_counter(), processors()
    what()
    return time.perf_counter() - wall, processors() - cpu


def bare(runs: list[Run]) -> None:
    for run in runs:
        execute(run)


def study(runs: list[Run], workers: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "study"
        failures = execute_study(runs, folder, Processes(folder, workers), lambda steps, finished: None)
        assert not failures, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=10)
    asked = parser.parse_args()

    torch.set_num_threads(1)  # as the workers
    runs = tiny(asked.runs, asked.steps)
    bare(runs[:1])  # imports, and what is made once
    half = len(runs) // 2
    before, one, two, after = (
        measured(lambda: bare(runs[:half])),
        measured(lambda: study(runs, 1)),
        measured(lambda: study(runs, 2)),
        measured(lambda: bare(runs[half:])),
    )
    wall, cpu = (a + b for a, b in zip(before, after, strict=True))
    print(
        json.dumps(
            {
                "benchmark": "study",
                "runs": len(runs),
                "steps": asked.steps,
                "bare_ms": round(1000 * wall / len(runs), 1),
                "overhead_ms": round(1000 * (one[0] - wall) / len(runs), 1),
                "overhead_cpu_ms": round(1000 * (one[1] - cpu) / len(runs), 1),
                "two_workers": round(two[0] / one[0], 3),
                "cores": os.cpu_count(),
                "processor": platform.processor() or platform.machine(),
                "torch": torch.__version__,
            }
        )
    )


if __name__ == "__main__":
    main()
