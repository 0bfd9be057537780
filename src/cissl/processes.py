"""Work on a study in processes of this machine: one that crashes or is killed costs its own run only."""

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

from cissl.execution import Machine
from cissl.study import Ended, Group, beside, work


class Processes:
    """Up to `jobs` processes side by side, each with one thread, started when there is work for them."""

    def __init__(self, folder: Path, jobs: int, machine: Machine | None = None) -> None:
        self.folder, self.jobs, self.machine = folder, jobs, machine or Machine()
        self.workers: list[Worker] = []

    def has_room(self) -> bool:
        return len(self.workers) < self.jobs or any(not worker.group for worker in self.workers)

    def give(self, group: Group) -> None:
        for worker in [worker for worker in self.workers if not worker.group]:
            if worker.give(group):
                return
            self.workers.remove(worker)  # it died while it had nothing to do
            worker.kill()
        worker = Worker(self.folder, self.machine)
        self.workers.append(worker)
        worker.give(group)

    def wait(self, seconds: float, told: Callable[[Group, int], None]) -> list[tuple[Group, Ended]]:
        over = []
        ready = wait([worker.connection for worker in self.workers if worker.group], seconds)
        for worker in [worker for worker in self.workers if worker.connection in ready]:
            heard, group = worker.hear(), worker.group
            if isinstance(heard, int):
                told(group, heard)
                continue
            worker.group = []
            over.append((group, heard))
            if worker.process.exitcode is not None:
                self.workers.remove(worker)
                worker.kill()
        return over

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.workers = []


class Worker:
    """A process, and the group of runs that it does at the moment."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, folder, machine), daemon=True)
        with _deaf_to_ctrl_c():
            self.process.start()
        theirs.close()
        self.folder, self.group = folder, Group()

    def give(self, group: Group) -> bool:
        """False if the process is gone."""
        try:
            self.connection.send(group)
        except OSError:
            return False
        self.group = group
        return True

    def hear(self) -> int | Ended:
        """Steps while training, and how it ended. A process that died tells nothing, but its exit code does."""
        try:
            heard: int | Ended = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            log = self.folder / self.group[0].name / "output.log"
            return Ended([], _ending(self.process.exitcode) + (f" ({log} has what it said)" if log.exists() else ""))
        return heard

    def kill(self) -> None:
        self.process.kill()  # nothing half-written can stay: files appear by rename
        self.process.join()
        self.connection.close()


def _ending(exitcode: int | None) -> str:
    if exitcode == -getattr(signal, "SIGKILL", 9):
        return "its process was killed, often for want of memory: start the study again, perhaps with fewer --jobs"
    return f"its process ended with exit code {exitcode}: start the study again"


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


def _work(connection: Connection, folder: Path, machine: Machine) -> None:
    """A worker process: groups come in, steps while training and how it ended go out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    torch.set_num_threads(1)
    # The parent is gone when its end of the pipe is: then there is nobody to work for.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            group: Group = connection.recv()
            with output_to(folder / group[0].name / "output.log"):
                ended = work(group, folder, beside(folder), connection.send, machine)
            connection.send(ended)


@contextlib.contextmanager
def output_to(path: Path) -> Iterator[None]:
    """All that is printed meanwhile, by whatever library, goes to a file; an empty one is not kept."""
    kept = [os.dup(stream) for stream in (1, 2)]
    try:
        with contextlib.suppress(OSError):  # a folder that cannot be written is told by what is written first
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                for stream in (1, 2):
                    os.dup2(file.fileno(), stream)
        yield
    finally:
        for flushed in (sys.stdout, sys.stderr):
            flushed.flush()
        for stream, before in zip((1, 2), kept, strict=True):
            os.dup2(before, stream)
            os.close(before)
        with contextlib.suppress(OSError):
            if path.stat().st_size == 0:
                path.unlink()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
