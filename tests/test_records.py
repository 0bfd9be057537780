"""A run's folder: whatever is in it is whole, and what cannot be written or read is told in a sentence."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cissl import records
from cissl.training import Curve


def test_the_name_of_a_description_never_changes():
    """Folders of older studies are found by it."""
    description = {"b": 1, "a": [1.5, None, "β"], "c": {"y": True, "x": 1e-6}}
    assert records.canonical(description) == '{"a":[1.5,null,"\\u03b2"],"b":1,"c":{"x":1e-06,"y":true}}'
    assert records.name_of(description) == "a9fede2c4524"
    assert records.name_of(dict(reversed(description.items()))) == "a9fede2c4524"


def test_json_is_written_for_people_and_comes_back(tmp_path):
    content = {"a": [1, None, 0.1], "β": "ü"}
    records.write_json(tmp_path / "new" / "folder" / "a.json", content)
    assert json.loads((tmp_path / "new" / "folder" / "a.json").read_text(encoding="utf-8")) == content
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["a.json"]


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        records.write_json(tmp_path / "a.json", {"error": float("nan")})
    assert not list(tmp_path.iterdir())


def test_arrays_come_back_as_they_were(tmp_path):
    arrays = {"a": np.arange(5, dtype=np.float16), "who/b.weight": np.eye(2, dtype=np.uint8), "names": np.array(["β"])}
    records.write_arrays(tmp_path / "a.npz", arrays)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as saved:
        assert set(saved) == set(arrays)
        for name, array in arrays.items():
            assert saved[name].dtype == array.dtype
            assert np.array_equal(saved[name], array)


def test_objects_are_never_pickled(tmp_path):
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        records.write_arrays(tmp_path / "a.npz", {"a": np.array([{}], dtype=object)})
    assert not list(tmp_path.iterdir())


# ---- Stopped in the middle of writing


KILLED = """
import os, signal, sys
from pathlib import Path
from cissl import records

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def half(file):
    file.write(b"ne")
    file.flush()
    die()

def until(moment, path):
    if moment == "half written":
        records.write_whole(path, half)
    if moment == "written, not flushed":
        os.fsync = die
    if moment == "flushed, not renamed":
        os.replace = die
    records.write_whole(path, lambda file: file.write(b"new"))

for moment in ("half written", "written, not flushed", "flushed, not renamed"):
    for before in (None, b"old"):
        path = Path(sys.argv[1]) / f"{moment}-{before}"
        if before:
            path.write_bytes(before)
        child = os.fork()
        if child == 0:
            until(moment, path)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        assert os.WIFSIGNALED(status), f"{moment}: it was not killed"
        after = path.read_bytes() if path.exists() else None
        assert after == before, f"killed when {moment}: {before} became {after}"
        records.write_whole(path, lambda file: file.write(b"new"))
        assert path.read_bytes() == b"new"
print("all moments")
"""


def test_a_process_killed_while_writing_leaves_the_old_file_or_none(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("all moments\n", 0), done.stderr


class Stop(BaseException):
    """As Ctrl-C is one."""


def test_an_interrupted_write_leaves_the_old_file_and_nothing_beside(tmp_path):
    path = tmp_path / "a.json"
    records.write_json(path, "old")

    def interrupted(file):
        file.write(b"half")
        raise Stop

    with pytest.raises(Stop):
        records.write_whole(path, interrupted)
    assert json.loads(path.read_text()) == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_and_nothing_beside(tmp_path):
    """As far as the writer can see, a limit on the size of files is a disk with that much room."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "a.npz"
    records.write_arrays(path, {"a": np.arange(3)})
    before = path.read_bytes()
    noise = np.random.default_rng(0).integers(0, 256, 100_000, dtype=np.uint8)  # which does not compress
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            records.write_arrays(path, {"a": noise})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("when", ["fsync", "replace"])
def test_a_disk_that_is_full_at_the_end_of_writing_is_no_different(when, tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    records.write_json(path, "old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, when, full)
    with pytest.raises(OSError, match="No space left on device"):
        records.write_json(path, "new")
    assert json.loads(path.read_text()) == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_processes_do_not_write_into_one_file(tmp_path, monkeypatch):
    """Each has a file of its own beside the target, so the last rename wins, whole."""
    path = tmp_path / "a.json"

    def other_process(file):
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: -1)
            records.write_json(path, "theirs")
        file.write(b'"mine"')

    records.write_whole(path, other_process)
    assert json.loads(path.read_text()) == "mine"
    assert list(tmp_path.iterdir()) == [path]


# ---- Told in a sentence


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "/secret"), "Permission denied"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system"),
        (OSError("strange"), "strange"),
    ],
)
def test_what_cannot_be_written_is_told_with_what_to_do(error, why, tmp_path, monkeypatch):
    def refuse(*_):
        raise error

    monkeypatch.setattr(Path, "open", refuse)
    with (
        pytest.raises(OSError, match="cannot write") as caught,
        records.readable_errors(tmp_path.parent),
        records.readable_errors(tmp_path),  # the nearest says it, and says it once
    ):
        records.write_json(tmp_path / "a.json", {})
    said = str(caught.value)
    assert said.startswith(f"cannot write to {tmp_path}: {why}. ")
    assert said.endswith("make room, or give another folder with --out, and start the same command again")
    assert said.count("cannot write") == 1
    assert "\n" not in said


def test_other_errors_pass_as_they_are(tmp_path):
    with pytest.raises(ValueError, match=r"^mine$"), records.readable_errors(tmp_path):
        raise ValueError("mine")


def test_no_result_is_none_wherever_one_looks(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path, tmp_path / "none", tmp_path / "file", tmp_path / "file" / "none"):
        assert records.read_result(folder) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no valid JSON"),
        (b'{"status": "do', "is no valid JSON"),
        (b"\xff\xfe\x00", "is no valid JSON"),
        (b"[]", "does not hold a run's result"),
        (b"{}", "does not hold a run's result"),
    ],
)
def test_a_broken_result_is_told_with_what_to_do(content, said, tmp_path):
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(ValueError, match="delete that file, and the run starts again") as caught:
        records.read_result(tmp_path)
    assert str(tmp_path / "result.json") in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


# ---- The curve


def curve(first, last, seeds=None):
    steps = np.arange(first, last + 1)
    loss = steps / 4.0 if seeds is None else steps[:, None] / 4.0 + np.arange(seeds)
    return Curve(steps, {"loss": loss, "supervised": loss / 2}, np.linspace(0.1, 0.05, len(steps)))


@pytest.mark.parametrize(("seeds", "column", "more"), [(None, None, 0), (3, 0, 0), (3, 2, 2)])
def test_a_row_of_the_curve_is_the_mean_over_its_stretch(seeds, column, more, tmp_path):
    file = records.CurveFile(tmp_path / "steps.csv")
    for first, last in ((1, 4), (5, 6)):
        file.append(curve(first, last, seeds), column)
    file.write()
    rows = [line.split(",") for line in (tmp_path / "steps.csv").read_text().splitlines()]
    assert rows[0] == ["step", "learning_rate", "loss", "supervised"]
    means = [0.625 + more, 1.375 + more]
    assert [[float(cell) for cell in row] for row in rows[1:]] == [
        [4, 0.05, means[0], means[0] / 2],
        [6, 0.05, means[1], means[1] / 2],
    ]


def test_a_loss_that_is_no_number_is_written_as_such(tmp_path):
    broken = curve(1, 3)
    broken.losses["loss"][1:] = [np.inf, np.nan]
    file = records.CurveFile(tmp_path / "steps.csv")
    file.append(broken)
    file.write()
    assert (tmp_path / "steps.csv").read_text().splitlines()[1].split(",")[2] == "nan"
