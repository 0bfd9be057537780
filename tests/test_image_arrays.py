"""Images decoded once: the array on disk is whole or not used, goes on after a stop, names what is broken."""

import json
import os

import numpy as np
import pytest
from folders import folder, picture

from cissl import image_arrays, image_files
from cissl.image_arrays import TooManyBroken, decode, same_content
from cissl.image_files import Reading, find, read

READING = Reading(8, 3)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(image_files, "BLOCK", 2)
    monkeypatch.setattr(image_arrays, "BLOCKS_PER_NOTE", 1)


def spoil(path):
    path.write_text("no image")


def test_the_array_holds_what_could_be_read(tmp_path, small_blocks):
    root = folder(tmp_path / "set", {"disc": 3, "square": 4})
    spoil(root / "disc" / "001.png")
    listing, told = find(root), []
    found = decode(listing, READING, tmp_path / "cache", tell=lambda done, of: told.append((done, of)))
    assert told == [(2, 7), (4, 7), (6, 7), (7, 7)]
    assert isinstance(found.images, np.memmap)
    assert found.images.shape == (6, 8, 8, 3)
    assert found.rows.tolist() == [0, 2, 3, 4, 5, 6]
    assert list(found.broken) == ["disc/001.png"]
    for pixels, row in zip(found.images, found.rows, strict=True):
        assert (pixels == read(listing.path(int(row)), READING)).all()
    assert len(set(found.hashes.tolist())) == 6


def test_nothing_is_read_twice(tmp_path, monkeypatch):
    listing = find(folder(tmp_path / "set", {"disc": 2, "square": 2}))
    first = decode(listing, READING, tmp_path / "cache")
    monkeypatch.setattr(image_arrays, "read_all", None)
    again = decode(find(tmp_path / "set"), READING, tmp_path / "cache")
    assert (again.images == first.images).all()
    assert (again.hashes == first.hashes).all()


def test_other_files_or_another_reading_are_another_array(tmp_path):
    root = folder(tmp_path / "set", {"disc": 2, "square": 2})
    keys = {image_arrays.key(find(root), reading) for reading in (READING, Reading(8, 1), Reading(9, 3))}
    keys.add(image_arrays.key(find(root), Reading(8, 3, "stretch")))
    os.utime(root / "disc" / "000.png", (1, 1))
    keys.add(image_arrays.key(find(root), READING))
    (root / "disc" / "001.png").rename(root / "disc" / "009.png")
    keys.add(image_arrays.key(find(root), READING))
    assert len(keys) == 6


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_stopped_anywhere_it_goes_on_and_ends_the_same(tmp_path, small_blocks, after):
    root = folder(tmp_path / "set", {"disc": 4, "square": 4})
    spoil(root / "square" / "000.png")
    listing = find(root)
    whole = decode(listing, READING, tmp_path / "undisturbed")

    def stop(done, of):
        if done == 2 * (after + 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decode(listing, READING, tmp_path / "cache", tell=stop)
    told = []
    found = decode(listing, READING, tmp_path / "cache", tell=lambda done, of: told.append(done))
    assert told == list(range(2 * (after + 1), 9, 2))  # what had been noted before the stop is not read again
    assert (found.images == whole.images).all()
    assert (found.hashes == whole.hashes).all()
    assert found.rows.tolist() == whole.rows.tolist()
    assert found.broken == whole.broken
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == ["", ".lock"]


def test_what_was_written_after_the_last_note_does_not_count(tmp_path, small_blocks):
    listing = find(folder(tmp_path / "set", {"disc": 4, "square": 4}))
    whole = decode(listing, READING, tmp_path / "undisturbed")

    def stop(done, of):
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decode(listing, READING, tmp_path / "cache", tell=stop)
    (part,) = (tmp_path / "cache").glob("*.part")
    with (part / "images.bin").open("ab") as file:
        file.write(b"half an image")
    assert (decode(listing, READING, tmp_path / "cache").images == whole.images).all()


@pytest.mark.parametrize("damage", ["images.bin", "rows.bin", "hashes.bin", "array.json"])
def test_a_damaged_array_is_decoded_anew(tmp_path, damage):
    listing = find(folder(tmp_path / "set", {"disc": 2, "square": 2}))
    before = np.array(decode(listing, READING, tmp_path / "cache").images)
    path = tmp_path / "cache" / image_arrays.key(listing, READING) / damage
    path.write_bytes(path.read_bytes()[:-3])
    assert (decode(listing, READING, tmp_path / "cache").images == before).all()


def test_too_many_broken_files_are_named_and_allowing_more_goes_on(tmp_path, small_blocks):
    root = folder(tmp_path / "set", {"disc": 3, "square": 4})
    spoil(root / "disc" / "000.png")
    spoil(root / "square" / "003.png")
    listing = find(root)
    with pytest.raises(TooManyBroken) as error:
        decode(listing, READING, tmp_path / "cache", max_broken=1)
    assert str(error.value).splitlines() == [
        "more than 1 files cannot be read:",
        "  disc/000.png: not an image, or damaged at its beginning",
        "  square/003.png: not an image, or damaged at its beginning",
        "Mend or remove them, or allow more with --max-broken",
    ]
    assert len(decode(listing, READING, tmp_path / "cache", max_broken=2).images) == 5
    with pytest.raises(TooManyBroken):
        decode(listing, READING, tmp_path / "cache", max_broken=1)


def test_no_image_at_all_and_no_room_are_said(tmp_path, monkeypatch):
    root = folder(tmp_path / "set", {"disc": 1})
    spoil(root / "disc" / "000.png")
    with pytest.raises(ValueError, match=r"none of the 1 images in .*set can be read; disc/000.png: not an image"):
        decode(find(root), READING, tmp_path / "cache")
    monkeypatch.setattr(image_arrays.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 100}))
    with pytest.raises(ValueError, match=r"need 0.0 GB in .* are free: give another folder with --data-dir"):
        decode(find(root), Reading(9, 3), tmp_path / "cache")


def test_same_content_under_another_name_is_found(tmp_path):
    first, second = folder(tmp_path / "a", {"disc": 2, "square": 3}), tmp_path / "b"
    second.mkdir()
    picture("square", 1).save(second / "other name.bmp")
    picture("square", 77).save(second / "another.png")
    a, b = (decode(find(root, labeled=False), READING, tmp_path / "cache") for root in (first, second))
    mine, theirs = same_content(a.hashes, b.hashes)
    assert [find(first).names[i] for i in mine] == ["square/001.png"]
    assert theirs.tolist() == [1]


def test_a_note_that_is_no_note_is_passed_over(tmp_path, small_blocks):
    listing = find(folder(tmp_path / "set", {"disc": 2, "square": 2}))
    part = tmp_path / "cache" / f"{image_arrays.key(listing, READING)}.part"
    part.mkdir(parents=True)
    for note in (b"torn {", json.dumps({"done": 2, "rows": 2, "broken": {}}).encode()):  # the second without its files
        (part / "progress.json").write_bytes(note)
    assert len(decode(listing, READING, tmp_path / "cache").images) == 4
