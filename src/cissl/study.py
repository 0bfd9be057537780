"""A study is a list of runs; this gets them done, here or on a cluster. The same run is never done twice."""

import contextlib
import os
import shutil
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from cissl import leases, records
from cissl.execution import Machine, Status, execute, execute_seeds
from cissl.run import Description, Run

SEEDS_AT_ONCE = 20  # more gain little, and shorter work spreads better over processes
LOOK_AGAIN = 0.5  # seconds between looks at what other launchers do
Group = list[Description]
Progress = Callable[[int, int], object]  # steps done (of one run each), runs finished


class Failure(NamedTuple):
    runs: Group
    reason: str


class Ended(NamedTuple):
    """How the work on a group ended: `elsewhere` are the runs that somebody else is doing."""

    elsewhere: Group
    reason: str | None = None
    tries: int = 2  # how often such a failure is tried: not again where the description is the mistake


@runtime_checkable
class Workers(Protocol):
    """Where groups of runs are worked on: this process, processes of this machine, or a cluster."""

    def has_room(self) -> bool: ...

    def give(self, group: Group) -> None: ...

    def wait(self, seconds: float, told: Callable[[Group, int], None]) -> list[tuple[Group, Ended]]:
        """Wait for something to happen, not longer than that; say the steps that were taken, return what ended."""

    def stop(self) -> None: ...


# ---- What there is to do


def pending(runs: Iterable[Description], folder: Path) -> Group:
    return [run for run in dict.fromkeys(runs) if records.read_result(folder / run.name) is None]


def groups(runs: Sequence[Description]) -> list[Group]:
    """Runs that are trained at once: those that differ in their seed only, where the network is made for it."""
    alike: dict[str, Group] = {}
    for run in runs:
        described = run.model_dump() | ({"seed": 0} if run.seeds_together else {})
        alike.setdefault(records.canonical(described), []).append(run)
    return [many[i : i + SEEDS_AT_ONCE] for many in alike.values() for i in range(0, len(many), SEEDS_AT_ONCE)]


def beside(folder: Path) -> list[Path]:
    """The other studies next to this one: a run that one of them has is the same run."""
    here = folder.resolve()
    return sorted(path.parent for path in here.parent.glob("*/study.json") if path.parent != here)


def bring(run: Description, folder: Path, others: Sequence[Path]) -> bool:
    """Take a finished run over from another study: linked, not copied, where the file system can."""
    for other in others:
        theirs, mine = other / run.name, folder / run.name
        if (theirs / "result.json").is_file():
            mine.mkdir(parents=True, exist_ok=True)
            # The result last: whoever sees it finds the rest.
            for path in sorted(theirs.iterdir(), key=lambda path: path.name == "result.json"):
                if path.is_file() and path.suffix in (".json", ".csv", ".npz") and path.name != leases.NAME:
                    _link(path, mine / path.name)
            return True
    return False


def _link(source: Path, target: Path) -> None:
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    try:
        os.link(source, beside)
    except OSError:
        shutil.copyfile(source, beside)
    os.replace(beside, target)


# ---- Doing one group: in whichever process that is


def work(group: Group, folder: Path, others: Sequence[Path], told: Callable[[int], object], machine: Machine) -> Ended:
    """Do what nobody else does of a group. What nobody foresaw leaves its traceback in the first run's output.log."""
    try:
        with leases.Leases(folder, others) as held:
            with records.readable_errors(folder):
                names = held.take([run.name for run in group])
            mine = [run for run in group if run.name in names]
            elsewhere = [run for run in group if run.name not in names]
            try:
                if mine:
                    _execute(mine, folder, lambda status: _tell(status, held, told), machine)
            except (leases.Lost, records.Busy):
                return Ended(group)
            return Ended(elsewhere)
    except ValueError as error:
        return Ended([], str(error), tries=1)
    except OSError as error:
        return Ended([], str(error))
    except Exception as error:
        log = folder / group[0].name / "output.log"
        with contextlib.suppress(OSError), log.open("a") as file:
            file.write(traceback.format_exc())
        return Ended([], f"{type(error).__name__}: {error} (the traceback is in {log})")


def _tell(status: Status, held: leases.Leases, told: Callable[[int], object]) -> None:
    held.tell(status.step, resumed=status.curve is None)
    told(status.steps)


def _execute(group: Group, folder: Path, watch: Callable[[Status], object], machine: Machine) -> None:
    if group[0].seeds_together:
        runs = [run for run in group if isinstance(run, Run)]
        execute_seeds(runs, [folder / run.name for run in group], watch)
    else:
        for run in group:
            execute(run, folder / run.name, watch, machine)


# ---- Getting all of them done


def execute_study(
    runs: Sequence[Description],
    folder: Path,
    workers: Workers,
    progress: Progress,
) -> list[Failure]:
    """Do what is not done yet, together with whoever else is at the same study; what failed is tried once more.

    Returns when every run has a result or has failed. One thread each: the thread count is part of a result.
    """
    launch = Launch(runs, folder, progress)
    try:
        while launch.groups or launch.busy or launch.elsewhere:
            while launch.groups and workers.has_room():
                if group := launch.take():
                    workers.give(group)
            for group, ended in workers.wait(LOOK_AGAIN, launch.told):
                launch.ended(group, ended)
            launch.look_elsewhere()
    finally:
        workers.stop()
    return launch.failures


class Launch:
    """One launcher's view of a study: what is waiting, under way here, and under way elsewhere."""

    def __init__(self, runs: Sequence[Description], folder: Path, progress: Progress) -> None:
        self.folder, self.progress, self.others = folder, progress, beside(folder)
        with records.readable_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            waiting = [run for run in pending(runs, folder) if not self._brought(run)]
            for run in waiting:  # the same command again: what failed before has a new chance
                if leases.seen(folder / run.name) is None:
                    (folder / run.name / "failure.json").unlink(missing_ok=True)
        self.groups = deque(groups(waiting))
        self.busy: dict[str, int] = {}  # steps told of each group, by the name of its first run
        self.elsewhere: Group = []
        self.tries: Counter[str] = Counter()
        self.failures: list[Failure] = []

    def take(self) -> Group:
        """What is still to be done of the next group."""
        unfinished = [run for run in self.groups.popleft() if not self._finished(run)]
        taken = [self._taken(run) for run in unfinished]
        self.elsewhere += [run for run, is_taken in zip(unfinished, taken, strict=True) if is_taken]
        group = [run for run, is_taken in zip(unfinished, taken, strict=True) if not is_taken]
        if group:
            self.busy[group[0].name] = 0
        return group

    def told(self, group: Group, steps: int) -> None:
        self.busy[group[0].name] += steps
        self.progress(steps * len(group), 0)

    def ended(self, group: Group, ended: Ended) -> None:
        """What diverged or failed trains no further. A failure is of those runs that have no result."""
        told = self.busy.pop(group[0].name)
        self.elsewhere += ended.elsewhere
        mine = [run for run in group if run not in ended.elsewhere]
        failed = [run for run in mine if ended.reason and not self._has_result(run)]
        done = [run for run in mine if run not in failed]
        for run in done:
            (self.folder / run.name / "failure.json").unlink(missing_ok=True)
        self.progress(sum(run.steps - told for run in done) - told * len(ended.elsewhere), len(done))
        if failed and ended.reason:
            self._failed(failed, ended, told)

    def _failed(self, failed: Group, ended: Ended, told: int) -> None:
        assert ended.reason is not None
        self.tries.update(run.name for run in failed)
        if self.tries[failed[0].name] < ended.tries:
            self.progress(-told * len(failed), 0)
            self.groups.append(failed)
            return
        for run in failed:
            failure = {"reason": ended.reason, "tries": self.tries[run.name]}
            with contextlib.suppress(OSError):
                records.write_json(self.folder / run.name / "failure.json", failure)
        self.progress(sum(run.steps - told for run in failed), 0)
        self.failures.append(Failure(failed, ended.reason))

    def look_elsewhere(self) -> None:
        """What others did is done, what they failed at has failed, and what they left is ours to do."""
        left: Group = []
        for run in self.elsewhere:
            if self._finished(run):
                continue
            if self._taken(run):
                left.append(run)
            elif (failure := self.folder / run.name / "failure.json").is_file():
                self.progress(run.steps, 0)
                self.failures.append(Failure([run], str(records.read_json(failure)["reason"])))
            else:
                self.groups.append([run])
        self.elsewhere = left

    def _has_result(self, run: Description) -> bool:
        return (self.folder / run.name / "result.json").exists()

    def _finished(self, run: Description) -> bool:
        if not self._has_result(run) and not self._brought(run):
            return False
        self.progress(run.steps, 1)
        return True

    def _brought(self, run: Description) -> bool:
        return bring(run, self.folder, self.others)

    def _taken(self, run: Description) -> bool:
        return any(leases.seen(folder / run.name) is not None for folder in (self.folder, *self.others))


# ---- In this process


class InHere:
    """One group after the other, in this process, on one thread."""

    def __init__(self, folder: Path, machine: Machine | None = None) -> None:
        self.folder, self.machine, self.group = folder, machine or Machine(), list[Description]()

    def has_room(self) -> bool:
        return not self.group

    def give(self, group: Group) -> None:
        self.group = group

    def wait(self, seconds: float, told: Callable[[Group, int], None]) -> list[tuple[Group, Ended]]:
        group, self.group = self.group, []
        if not group:
            time.sleep(seconds)
            return []
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            ended = work(group, self.folder, beside(self.folder), lambda steps: told(group, steps), self.machine)
        finally:
            torch.set_num_threads(before)
        return [(group, ended)]

    def stop(self) -> None:
        pass
