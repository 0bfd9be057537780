"""Leases: one holder at a time, signs of life, and what becomes of a dead one's."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from cissl import leases
from cissl.leases import DEAD_AFTER, NAME, Leases, Lost, seen


def aged(path, seconds):
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def somewhere_else(path, **changes):
    """The lease as a process of another machine would have written it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lease = {"owner": "them", "where": "another machine", "pid": 1, "step": 40, "rate": 2.0, **changes}
    path.write_text(json.dumps(lease))


def test_what_one_has_taken_another_does_not_get(tmp_path):
    with Leases(tmp_path) as one, Leases(tmp_path) as other:
        assert one.take(["a", "b"]) == ["a", "b"]
        assert other.take(["b", "c"]) == ["c"]
        one.give_back(["b"])
        assert other.take(["b"]) == ["c", "b"]
    assert not list(tmp_path.rglob(NAME))


def test_a_lease_tells_who_and_how_far(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "BEAT", 0.02)
    with Leases(tmp_path) as mine:
        mine.take(["run"])
        assert (seen(tmp_path / "run").step, seen(tmp_path / "run").pid) == (0, os.getpid())
        mine.tell(100, resumed=True)
        mine.tell(140)
        deadline = time.monotonic() + 60
        while seen(tmp_path / "run").step != 140 and time.monotonic() < deadline:
            time.sleep(0.01)
        lease = seen(tmp_path / "run")
    assert lease.step == 140
    assert 0 < lease.rate < 40 / 1e-3  # of the 40 steps since it went on
    assert seen(tmp_path / "run") is None


def test_many_at_once_never_hold_the_same(tmp_path):
    names, got = [f"run{i}" for i in range(20)], []

    def grab():
        with Leases(tmp_path) as mine:
            got.append(mine.take(names))
            together.wait(60)

    together = threading.Barrier(4)
    threads = [threading.Thread(target=grab) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for taken in got for name in taken) == sorted(names)


def test_of_two_processes_one_gets_it(tmp_path):
    program = f"""
from pathlib import Path
from cissl.leases import Leases
with Leases(Path({str(tmp_path)!r})) as mine:
    print(mine.take(["run"]), flush=True)
    input()
"""
    with (
        Leases(tmp_path) as mine,
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other,
    ):
        assert other.stdout.readline() == "['run']\n"
        assert mine.take(["run"]) == []
        other.kill()
        other.wait()
        assert mine.take(["run"]) == ["run"]  # the process is gone: no need to wait


@pytest.mark.parametrize(("seconds", "alive"), [(DEAD_AFTER - 10, True), (DEAD_AFTER + 1, False)])
def test_without_a_sign_of_life_for_long_it_is_dead(tmp_path, seconds, alive):
    path = tmp_path / "run" / NAME
    somewhere_else(path)
    aged(path, seconds)
    assert (seen(path.parent) is not None) is alive
    with Leases(tmp_path) as mine:
        assert (mine.take(["run"]) == []) is alive


def test_the_clock_is_the_file_servers(tmp_path, monkeypatch):
    """This machine's is an hour ahead."""
    somewhere_else(tmp_path / "run" / NAME)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert seen(tmp_path / "run").step == 40
    assert not list((tmp_path / "run").glob(".clock*"))


def test_a_process_number_counts_on_its_own_machine_only(tmp_path):
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    somewhere_else(tmp_path / "far" / NAME, pid=int(dead.stdout))
    somewhere_else(tmp_path / "near" / NAME, pid=int(dead.stdout), where=leases.here())
    assert seen(tmp_path / "far") is not None
    assert seen(tmp_path / "near") is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "7", '{"owner": "me"}', '{"pid": null}'])
def test_what_is_no_lease_is_none(tmp_path, content):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / NAME).write_text(content)
    assert seen(tmp_path / "run") is None
    with Leases(tmp_path) as mine:
        assert mine.take(["run"]) == ["run"]


def test_who_has_lost_it_stops_and_leaves_it_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "BEAT", 0.02)
    path = tmp_path / "run" / NAME
    with Leases(tmp_path) as mine:
        mine.take(["run"])
        mine.tell(1)
        beside = path.with_name("theirs")
        somewhere_else(beside)
        beside.rename(path)
        deadline = time.monotonic() + 60
        while not mine.lost and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(Lost):
            mine.tell(2)
    assert seen(path.parent).owner == "them"


def test_two_studies_never_do_one_run_at_once(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    with Leases(one, [two]) as mine, Leases(two, [one]) as theirs:
        assert mine.take(["run"]) == ["run"]
        assert theirs.take(["run"]) == []
        assert not (two / "run" / NAME).exists()


def test_a_full_disk_while_beating_ends_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "BEAT", 0.02)
    with Leases(tmp_path) as mine:
        mine.take(["run"])
        failed = threading.Event()

        def full(name):
            failed.set()
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(mine, "_write", full)
        assert failed.wait(60)
        mine.tell(3)
    assert not mine.lost
