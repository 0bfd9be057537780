"""Who does which run: a file in the run's folder, kept fresh while somebody works on it. Imports no torch.

Several launchers, on one machine or on many that share the folder, may work on one study. Whoever wants a run writes
its lease first; the lease of one that has died goes stale and is taken over.
"""

import contextlib
import functools
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cissl.records import locked

BEAT = 2.0  # seconds between signs of life
DEAD_AFTER = 30.0  # seconds without one: far more than a busy machine or a slow file server needs for a beat
NAME = "lease.json"


class Lost(Exception):
    """Somebody else has taken the run over: whoever held it stops."""


class Seen(NamedTuple):
    """What a lease says: its owner and how far the run is."""

    owner: str
    where: str
    pid: int
    step: int
    rate: float  # steps a second


def seen(folder: Path) -> Seen | None:
    """The lease of a run, None where there is none that somebody alive holds."""
    path = folder / NAME
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        lease = Seen(**{name: content[name] for name in Seen._fields})
        age = time.time() - path.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return None  # none, or not a lease: they appear by rename, so it is not one that is being written
    if lease.where == here() and not _runs(lease.pid):
        return None
    if age > DEAD_AFTER:  # by this machine's clock; the file server's decides
        with contextlib.suppress(OSError):
            age = _now(folder) - path.stat().st_mtime
    return lease if age <= DEAD_AFTER else None


@functools.cache
def here() -> str:
    """What tells process numbers of this machine, or container, from those of another."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's process
    return True


def _now(folder: Path) -> float:
    """The clock by which the folder's files are dated."""
    probe = folder / f".clock.{os.getpid()}.{threading.get_ident()}"
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


@dataclass
class Leases:
    """The leases that one process holds, with a thread that keeps them fresh. Use as a context.

    `also` are other folders where the same runs may be under way: a run of a name is the same run everywhere.
    """

    folder: Path
    also: Sequence[Path] = ()
    held: list[str] = field(default_factory=list)
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)
    lost: bool = False
    step: int = 0
    began: tuple[int, float] = (0, 0.0)  # the step from which on we train, and when

    def take(self, names: Iterable[str]) -> list[str]:
        """Those of the runs that nobody else is doing: they are ours now."""
        with locked(self.folder / ".leases.lock"):
            for name in names:
                if seen(self.folder / name) is None:
                    self.held.append(name)
                    self._write(name)
        # Written first and looked for afterwards, so of two studies at least one sees the other, and steps back.
        for name in list(self.held):
            if any(seen(other / name) is not None for other in self.also):
                self.give_back([name])
        self.began = 0, time.monotonic()
        return list(self.held)

    def give_back(self, names: Iterable[str]) -> None:
        for name in list(names):
            self.held.remove(name)
            if self._mine(name):
                (self.folder / name / NAME).unlink(missing_ok=True)

    def tell(self, step: int, resumed: bool = False) -> None:
        """How far the runs are, for whoever looks; raises when they are no longer ours."""
        self.step = step
        if resumed:
            self.began = step, time.monotonic()
        if self.lost:
            raise Lost

    def _mine(self, name: str) -> bool:
        try:
            content = json.loads((self.folder / name / NAME).read_bytes())
        except (OSError, ValueError):
            return False
        return isinstance(content, dict) and content.get("owner") == self.owner

    def _write(self, name: str) -> None:
        path = self.folder / name / NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        rate = (self.step - self.began[0]) / max(time.monotonic() - self.began[1], 1e-9)
        lease = Seen(self.owner, here(), os.getpid(), self.step, round(rate, 3))
        beside = path.with_name(f".{NAME}.{self.owner}")
        beside.write_text(json.dumps(lease._asdict()))  # not flushed to the disk: of use to the living only
        os.replace(beside, path)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT):
            for name in list(self.held):
                try:
                    if not self._mine(name):
                        self.lost = True
                    elif not self.lost:
                        self._write(name)
                except OSError:  # a full disk: the next beat may do better
                    continue

    def __enter__(self) -> "Leases":
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="leases")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self.give_back(self.held)
