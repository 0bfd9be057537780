"""A study is a list of runs; this executes it on this machine. The same run is never done twice."""

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

import torch

from cissl import records
from cissl.execution import Machine, execute, execute_seeds, one_thread
from cissl.run import Run

SEEDS_AT_ONCE = 20  # more gain little, and shorter work spreads better over processes
SEEDS_TOGETHER = ("toy-mlp", "mlp")  # the networks whose seeds are trained at once: small, without BatchNorm
Progress = Callable[[int, int], object]  # steps done (of one run each), runs finished


class Failure(NamedTuple):
    runs: list[Run]
    reason: str


def pending(runs: Sequence[Run], folder: Path) -> list[Run]:
    return [run for run in dict.fromkeys(runs) if records.read_result(folder / run.name) is None]


def groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that are trained at once: those that differ in their seed only, where the network is made for it."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        together = run.network in SEEDS_TOGETHER
        alike.setdefault(records.canonical({**run.model_dump(), "seed": 0 if together else run.seed}), []).append(run)
    return [many[i : i + SEEDS_AT_ONCE] for many in alike.values() for i in range(0, len(many), SEEDS_AT_ONCE)]


def execute_study(
    runs: Sequence[Run], folder: Path, jobs: int, progress: Progress, machine: Machine | None = None
) -> list[Failure]:
    """Do what is not done yet, `jobs` processes side by side, one thread each: the thread count is part of a result."""
    waiting = groups(pending(runs, folder))
    with records.readable_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if jobs > 1 and len(waiting) > 1:
        return _in_processes(waiting, folder, min(jobs, len(waiting)), progress, machine)
    with one_thread():
        return [failed for group in waiting if (failed := _in_here(group, folder, progress, machine)) is not None]


def _in_here(group: list[Run], folder: Path, progress: Progress, machine: Machine | None) -> Failure | None:
    told = Told(group, progress)
    return told.ended(_do(group, folder, told, machine), folder)


class Told:
    """Passes a group's progress on as steps of single runs."""

    def __init__(self, group: list[Run], progress: Progress) -> None:
        self.group, self.progress, self.steps = group, progress, 0

    def __call__(self, steps: int) -> None:
        self.steps += steps
        self.progress(steps * len(self.group), 0)

    def ended(self, reason: str | None, folder: Path) -> Failure | None:
        """What diverged or failed trains no further. A failure is of those runs that have no result."""
        failed = [run for run in self.group if reason and not (folder / run.name / "result.json").exists()]
        left = self.group[0].steps - self.steps
        self.progress(left * len(self.group), len(self.group) - len(failed))
        return Failure(failed, reason) if reason and failed else None


def _do(group: list[Run], folder: Path, progress: Callable[[int], object], machine: Machine | None) -> str | None:
    """Why it failed, None if it did not. What nobody foresaw leaves its traceback in the run's folder."""
    try:
        if len(group) > 1 or group[0].network in SEEDS_TOGETHER:
            execute_seeds(group, [folder / run.name for run in group], lambda status: progress(status.steps))
        else:
            execute(group[0], folder / group[0].name, lambda status: progress(status.steps), machine)
    except (ValueError, OSError) as error:
        return str(error)
    except Exception as error:
        log = folder / group[0].name / "error.log"
        with contextlib.suppress(OSError):
            records.write_whole(log, lambda file: file.write(traceback.format_exc().encode()))
        return f"{type(error).__name__}: {error} (the traceback is in {log})"
    return None


class Worker:
    """A process, and the group of runs that it does at the moment."""

    def __init__(self, folder: Path, group: list[Run], progress: Progress, machine: Machine | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, folder, machine), daemon=True)
        with _deaf_to_ctrl_c():
            self.process.start()
        theirs.close()
        self.told = Told(group, progress)
        self.give(group, progress)

    def give(self, group: list[Run], progress: Progress) -> bool:
        """False if the process is gone."""
        try:
            self.connection.send(group)
        except OSError:
            return False
        self.told = Told(group, progress)
        return True

    def hear(self) -> tuple[int | None, str | None]:
        """(steps, None) while training, (None, why it failed or None) at the end of the group."""
        try:
            steps, reason = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return None, _ending(self.process.exitcode)
        return steps, reason

    def dismiss(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.send(None)
        self.process.join()
        self.connection.close()

    def kill(self) -> None:
        self.process.kill()  # nothing half-written can stay: files appear by rename
        self.process.join()
        self.connection.close()


def _ending(exitcode: int | None) -> str:
    if exitcode == -getattr(signal, "SIGKILL", 9):
        return "its process was killed, often for want of memory: start the study again, perhaps with fewer --jobs"
    return f"its process ended with exit code {exitcode}: start the study again"


def _in_processes(
    waiting: list[list[Run]], folder: Path, jobs: int, progress: Progress, machine: Machine | None
) -> list[Failure]:
    failures: list[Failure] = []
    workers: list[Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(Worker(folder, waiting.pop(0), progress, machine))
            ready = wait([worker.connection for worker in workers])
            for worker in [worker for worker in workers if worker.connection in ready]:
                steps, reason = worker.hear()
                if steps is not None:
                    worker.told(steps)
                    continue
                if (failure := worker.told.ended(reason, folder)) is not None:
                    failures.append(failure)
                if waiting and worker.give(waiting[0], progress):
                    waiting.pop(0)
                else:
                    workers.remove(worker)
                    worker.dismiss()
    finally:
        for worker in workers:
            worker.kill()
    return failures


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """A process started within never sees Ctrl-C, not even while it imports; it comes to this one afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it would let the signal through again when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, folder: Path, machine: Machine | None) -> None:
    """A worker process: groups come in, (steps, None) while training and (None, reason) at the end go out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    torch.set_num_threads(1)
    # The parent is gone when its end of the pipe is: then there is nobody to work for.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while (group := connection.recv()) is not None:
            reason = _do(group, folder, lambda steps: connection.send((steps, None)), machine)
            connection.send((None, reason))


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
