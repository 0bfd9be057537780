"""A study is a list of runs; this executes it on this machine. The same run is never done twice."""

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cissl import records
from cissl.run import Run, execute, execute_seeds

SEEDS_AT_ONCE = 20  # more gain little, and shorter work spreads better over processes
SEEDS_TOGETHER = ("toy-mlp", "mlp")  # the networks whose seeds are trained at once: small, without BatchNorm
Progress = Callable[[int, int], object]  # steps done (of one run each), runs finished


class Failure(NamedTuple):
    runs: list[Run]
    reason: str


@dataclass
class Worker:
    process: Any
    connection: Connection
    group: list[Run]
    steps_told: int = 0


def pending(runs: Sequence[Run], folder: Path) -> list[Run]:
    return [run for run in dict.fromkeys(runs) if records.read_result(folder / run.name) is None]


def groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that are trained at once: those that differ in their seed only, where the network is made for it."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        together = run.network in SEEDS_TOGETHER
        alike.setdefault(records.canonical({**run.model_dump(), "seed": 0 if together else run.seed}), []).append(run)
    return [many[i : i + SEEDS_AT_ONCE] for many in alike.values() for i in range(0, len(many), SEEDS_AT_ONCE)]


def execute_study(runs: Sequence[Run], folder: Path, jobs: int, progress: Progress) -> list[Failure]:
    """Do what is not done yet, `jobs` processes side by side, one thread each: the thread count is part of a result."""
    waiting = groups(pending(runs, folder))
    with records.readable_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if jobs > 1 and len(waiting) > 1:
        return _in_processes(waiting, folder, min(jobs, len(waiting)), progress)
    with one_thread():
        return [failed for group in waiting if (failed := _in_here(group, folder, progress)) is not None]


def _in_here(group: list[Run], folder: Path, progress: Progress) -> Failure | None:
    told = Told(len(group), progress)
    reason = _do(group, folder, told)
    told.finish(group[0].steps)
    return None if reason is None else Failure(group, reason)


@dataclass
class Told:
    """Passes a group's progress on as steps of single runs."""

    runs: int
    progress: Progress
    steps: int = 0

    def __call__(self, steps: int) -> None:
        self.steps += steps
        self.progress(steps * self.runs, 0)

    def finish(self, steps: int) -> None:
        self.progress((steps - self.steps) * self.runs, self.runs)  # what diverged or failed trains no further


def _do(group: list[Run], folder: Path, progress: Callable[[int], object]) -> str | None:
    """Why it failed, None if it did not. What nobody foresaw leaves its traceback in the run's folder."""
    try:
        if len(group) > 1 or group[0].network in SEEDS_TOGETHER:
            execute_seeds(group, [folder / run.name for run in group], progress)
        else:
            execute(group[0], folder / group[0].name, progress)
    except (ValueError, OSError) as error:
        return str(error)
    except Exception as error:
        log = folder / group[0].name / "error.log"
        with contextlib.suppress(OSError):
            records.write_whole(log, lambda file: file.write(traceback.format_exc().encode()))
        return f"{type(error).__name__}: {error} (the traceback is in {log})"
    return None


def _in_processes(waiting: list[list[Run]], folder: Path, jobs: int, progress: Progress) -> list[Failure]:
    waiting, failures, workers = list(waiting), [], []
    try:
        workers = [_started(folder, waiting.pop(0)) for _ in range(jobs)]
        while workers:
            ready = wait([worker.connection for worker in workers])
            for worker in [worker for worker in workers if worker.connection in ready]:
                told = Told(len(worker.group), progress, worker.steps_told)
                try:
                    steps, reason = worker.connection.recv()
                except (EOFError, ConnectionResetError):
                    worker.process.join()
                    steps, reason = None, f"its process ended with exit code {worker.process.exitcode}"
                    workers.remove(worker)
                    if waiting:
                        workers.append(_started(folder, waiting.pop(0)))
                if steps is not None:
                    told(steps)
                    worker.steps_told = told.steps
                    continue
                told.finish(worker.group[0].steps)
                if reason is not None:
                    failures.append(Failure(worker.group, reason))
                if worker in workers:
                    if waiting:
                        worker.group, worker.steps_told = waiting.pop(0), 0
                        worker.connection.send(worker.group)
                    else:
                        worker.connection.send(None)
                        workers.remove(worker)
                        worker.process.join()
    finally:
        for worker in workers:
            worker.process.kill()  # nothing half-written can stay: files appear by rename
            worker.process.join()
    return failures


def _started(folder: Path, group: list[Run]) -> Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, folder), daemon=True)
    process.start()
    theirs.close()
    ours.send(group)
    return Worker(process, ours, group)


def _work(connection: Connection, folder: Path) -> None:
    """A worker process: groups come in, (steps, None) while training and (None, reason) at the end go out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    torch.set_num_threads(1)
    # The parent is gone when its end of the pipe is: then there is nobody to work for.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while (group := connection.recv()) is not None:
            reason = _do(group, folder, lambda steps: connection.send((steps, None)))
            connection.send((None, reason))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
