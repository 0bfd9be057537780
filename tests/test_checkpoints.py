"""Checkpoints are whole or not there, and a damaged one costs no more than the steps since the one before."""

import errno

import pytest
import torch

from cissl import checkpoints


def state(step):
    return {"step": step, "weights": {"w": torch.arange(5.0) * step}, "names": ["a", "b"], "none": None}


@pytest.fixture
def folder(tmp_path):
    for step in (10, 20, 30):
        checkpoints.save(tmp_path, step, state(step))
    return tmp_path


def test_a_checkpoint_comes_back_as_it_was(folder):
    loaded = checkpoints.load(folder, print)
    assert loaded["step"] == 30
    assert torch.equal(loaded["weights"]["w"], torch.arange(5.0) * 30)
    assert (loaded["names"], loaded["none"]) == (["a", "b"], None)


def test_the_last_two_are_kept(folder):
    assert [path.name for path in checkpoints.newest_first(folder)] == [
        "checkpoint-000000030.pt",
        "checkpoint-000000020.pt",
    ]


def test_there_may_be_none(tmp_path):
    assert checkpoints.load(tmp_path, print) is None


@pytest.mark.parametrize("damage", ["torn", "flipped", "empty", "other"])
def test_a_damaged_newest_one_is_passed_over_and_said(folder, damage):
    newest = checkpoints.newest_first(folder)[0]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(
        {"torn": newest.read_bytes()[:-9], "flipped": bytes(content), "empty": b"", "other": b"hello" * 99}[damage]
    )
    said = []
    assert checkpoints.load(folder, said.append)["step"] == 20
    assert newest.name in said[0]


def test_every_single_flipped_byte_is_noticed(folder):
    newest = checkpoints.newest_first(folder)[0]
    whole = newest.read_bytes()
    for place in range(0, len(whole), 97):
        newest.write_bytes(whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :])
        assert checkpoints.load(folder, lambda text: None)["step"] == 20


def test_reading_runs_no_code(tmp_path):
    ran = []

    class Bomb:
        def __reduce__(self):
            return ran.append, (1,)

    checkpoints.save(tmp_path, 1, {"step": Bomb()})
    assert checkpoints.load(tmp_path, lambda text: None) is None
    assert ran == []


def test_a_full_disk_costs_nothing_written_before(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = {path: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoints.save(folder, 40, state(40))
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_nothing_is_left_when_the_result_is_there(folder):
    checkpoints.remove(folder)
    assert checkpoints.load(folder, print) is None
