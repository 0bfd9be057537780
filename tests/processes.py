"""Processes that tests start: who is in a session, and that nobody is left of it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE = 60.0  # seconds, for what takes less than one


@contextlib.contextmanager
def started(*command, **options):
    """A Python process in a session of its own, of which nothing is left afterwards."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc to see who is running")
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True, **options},
    )
    try:
        yield process
    finally:
        for pid in members(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def members(session, named=""):
    """The processes of a session that still run, those with `named` in their command."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, theirs = stat.read_text().rpartition(")")[2].split()[:4]
            command = (stat.parent / "cmdline").read_text()
            if int(theirs) == session and state not in "ZX" and named in command:
                found.append(int(stat.parent.name))
    return found


def blocks(pid, number):
    """Whether a process never gets to see that signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def gone(session):
    """Whether the session's processes end by themselves."""
    deadline = time.monotonic() + PATIENCE
    while members(session):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
