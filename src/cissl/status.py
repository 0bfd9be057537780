"""How a study stands, read from its folder alone: what is done, under way, waiting, and how long it may take."""

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cissl import leases, records

STUDY = "study.json"


def describe(folder: Path, study: str, title: str, command: str, runs: list[str]) -> None:
    """Write what the study is: all that others need to show it, also of runs that have not begun."""
    with records.readable_errors(folder):
        content = {"study": study, "title": title, "command": command, "runs": runs}
        records.write_json(folder / STUDY, content)


def described(folder: Path) -> dict[str, Any]:
    path = folder / STUDY
    if not path.is_file():
        raise ValueError(f"there is no study in {folder}: start it with `cissl run`, or say where it is with --out")
    content = records.read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("runs"), list):
        raise ValueError(f"{path} does not describe a study: start its `cissl run` command again, which writes it anew")
    return content


@dataclass
class Running:
    what: str
    step: int
    steps: int
    rate: float

    @property
    def left(self) -> float | None:
        """Seconds, None while it has no rate yet."""
        return (self.steps - self.step) / self.rate if self.rate > 0 else None


@dataclass
class Standing:
    """`seconds` are those of the runs that ended."""

    total: int
    done: int = 0
    waiting: int = 0
    diverged: list[str] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def left(self) -> float | None:
        """Seconds until all is done, at the pace of now: None where nothing runs or nothing is known of the pace."""
        if not self.running:
            return 0.0 if not self.waiting else None
        lefts = [running.left for running in self.running]
        known = [left for left in lefts if left is not None]
        whole = [running.steps / running.rate for running in self.running if running.rate > 0]
        each = statistics.fmean(self.seconds or whole) if self.seconds or whole else None
        if each is None:
            return None
        return (sum(known) + (len(lefts) - len(known) + self.waiting) * each) / len(self.running)


def standing(folder: Path) -> Standing:
    names = described(folder)["runs"]
    found = Standing(len(names))
    for name in names:
        _look(folder / name, found)
    return found


def _look(folder: Path, found: Standing) -> None:
    result = records.read_result(folder)
    if result is not None:
        found.seconds.append(float(result.get("seconds", 0.0)))
        if result["status"] == "diverged":
            found.diverged.append(f"{_what(folder)}, at step {result.get('diverged_at')}")
        else:
            found.done += 1
    elif (lease := leases.seen(folder)) is not None:
        found.running.append(Running(_what(folder), lease.step, int(_run(folder).get("steps", 0)), lease.rate))
    elif (folder / "failure.json").is_file():
        reason = str(records.read_json(folder / "failure.json").get("reason", ""))
        found.failed.append((_what(folder), reason.partition("\n")[0]))
    else:
        found.waiting += 1


def _run(folder: Path) -> dict[str, Any]:
    try:
        run = json.loads((folder / "run.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return run if isinstance(run, dict) else {}


def _what(folder: Path) -> str:
    run = _run(folder)
    parts = [str(run[name]) for name in ("dataset", "method") if name in run]
    if run.get("reweight", "ce") != "ce":
        parts.append(f"reweight {run['reweight']}")
    parts += [f"{name} {run[name]}" for name in ("labeled", "imbalance", "unlabeled", "seed") if name in run]
    return ", ".join(parts) or folder.name


def text(found: Standing) -> str:
    """The lines that `cissl status` prints."""
    ended = found.done + len(found.diverged)
    counts = [f"{found.done} done", f"{len(found.running)} running", f"{found.waiting} waiting"]
    counts += [f"{len(many)} {what}" for many, what in ((found.diverged, "diverged"), (found.failed, "failed")) if many]
    lines = [f"{ended} of {found.total} runs have ended: {', '.join(counts)}."]
    for running in sorted(found.running, key=lambda running: running.what):
        at = f"step {running.step:,} of {running.steps:,}"
        pace = f", {running.rate:.1f} steps/s, {duration(running.left)} left" if running.left is not None else ""
        lines.append(f"  running   {running.what}: {at}{pace}")
    lines += [f"  diverged  {what}" for what in found.diverged]
    lines += [f"  failed    {what}: {reason}" for what, reason in found.failed]
    if found.left is not None and ended + len(found.failed) < found.total:
        lines.append(f"All of it: about {duration(found.left)} left.")
    elif found.waiting and not found.running:
        lines.append("Nobody is working on it: the same `cissl run` command goes on.")
    return "\n".join(lines)


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
