"""Images decoded once into an array on disk, read from there by batches: larger than memory, and never half there.

A folder holds one array: `images.bin` (n, size, size, channels) uint8, `hashes.bin` with a hash of each image's
content, `rows.bin` with each image's place in the listing, and `array.json`. It is filled under another name, goes on
where it was stopped, and gets its own name when it is whole.
"""

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cissl import records
from cissl.image_files import Broken, Listing, Pixels, Reading, read_all

Tell = Callable[[int, int], object]  # done, of how many

FORMAT = 1
HASH_SIZE = 8  # bytes: among a million images two share one with a chance of 3 in 100 million
MAX_BROKEN = 10  # files, unless asked otherwise: more than that is hardly an accident
BLOCKS_PER_NOTE = 8  # how often it is noted how far it got
NOTE, ARRAY = "progress.json", "array.json"
FILES = ("images.bin", "hashes.bin", "rows.bin")


@dataclass(frozen=True)
class ImageArray:
    """What was read of a listing: the images that could be, and why the others could not."""

    images: npt.NDArray[np.uint8]  # (n, height, width, channels), memory-mapped
    hashes: npt.NDArray[np.uint64]  # (n,) of each image's content
    rows: npt.NDArray[np.int64]  # (n,) places in the listing
    broken: dict[str, str]  # file -> reason


class TooManyBroken(ValueError):
    """More files than allowed cannot be read."""


def too_many(broken: dict[str, str], allowed: int) -> TooManyBroken:
    named = "\n".join(f"  {name}: {reason}" for name, reason in list(broken.items())[:10])
    return TooManyBroken(
        f"more than {allowed} files cannot be read:\n{named}\nMend or remove them, or allow more with --max-broken"
    )


def decode(
    listing: Listing, reading: Reading, cache: Path, max_broken: int = MAX_BROKEN, tell: Tell | None = None
) -> ImageArray:
    """The array of these files, from `cache` where it was decoded before."""
    place = cache / key(listing, reading)
    if (found := _open(place, listing, max_broken)) is not None:
        return found
    with records.locked(cache / f"{place.name}.lock"):  # another process may be decoding the same
        if (found := _open(place, listing, max_broken)) is not None:
            return found
        _room(cache, len(listing) * int(np.prod(reading.shape)))
        part = place.with_name(f"{place.name}.part")
        _fill(part, listing, reading, max_broken, tell or (lambda done, of: None))
        shutil.rmtree(place, ignore_errors=True)  # one that is damaged
        os.replace(part, place)
    found = _open(place, listing, max_broken)
    if found is None:
        raise ValueError(f"{place} was changed while it was being written: start the same command again")
    return found


def key(listing: Listing, reading: Reading) -> str:
    """Names, sizes and times of the files, and how they are read: another content is another array."""
    digest = hashlib.sha256(json.dumps([FORMAT, dataclasses.asdict(reading)]).encode())
    digest.update(os.path.abspath(listing.root).encode("utf-8", "surrogateescape"))
    for name in listing.names:
        try:
            seen = os.stat(os.path.join(listing.root, name))
            told = f"{seen.st_size} {seen.st_mtime_ns}"
        except OSError:
            told = "absent"
        digest.update(f"\0{name}\0{told}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:24]


def _room(cache: Path, needed: int) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if needed > free:
        raise ValueError(
            f"the decoded images need {needed / 1e9:.1f} GB in {cache} and {free / 1e9:.1f} GB are free: "
            "give another folder with --data-dir, or a smaller --size"
        )


def _open(place: Path, listing: Listing, max_broken: int) -> ImageArray | None:
    """The finished array, None where there is none or a damaged one."""
    try:
        noted: dict[str, Any] = json.loads((place / ARRAY).read_bytes())
        shape, broken = tuple(noted["shape"]), dict(noted["broken"])
        rows = np.fromfile(place / "rows.bin", np.int64)
        hashes = np.fromfile(place / "hashes.bin", np.uint64)
        whole = (place / "images.bin").stat().st_size == int(np.prod(shape)) and len(rows) == len(hashes) == shape[0]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not whole:
        return None
    if len(broken) > max_broken:
        raise too_many(broken, max_broken)
    if not len(rows):
        raise ValueError(_none_left(listing, broken))
    images: npt.NDArray[np.uint8] = np.memmap(place / "images.bin", np.uint8, "r", shape=shape)
    return ImageArray(images, hashes, rows, broken)


def _none_left(listing: Listing, broken: dict[str, str]) -> str:
    name, reason = next(iter(broken.items()))
    return f"none of the {len(listing)} images in {listing.root} can be read; {name}: {reason}"


def _fill(part: Path, listing: Listing, reading: Reading, max_broken: int, tell: Tell) -> None:
    """Append block after block; a note says how much of the files counts, what was written behind it is cut off."""
    row_bytes = {"images.bin": int(np.prod(reading.shape)), "hashes.bin": HASH_SIZE, "rows.bin": 8}
    done, rows, broken = _noted(part, row_bytes)
    part.mkdir(parents=True, exist_ok=True)
    files = {name: (part / name).open("ab") for name in FILES}
    try:
        for name, file in files.items():
            file.truncate(rows * row_bytes[name])
        for number, block in enumerate(read_all(listing, reading, done), 1):
            good = [(done + i, pixels) for i, pixels in enumerate(block) if not isinstance(pixels, Broken)]
            broken |= {listing.names[done + i]: str(why) for i, why in enumerate(block) if isinstance(why, Broken)}
            files["images.bin"].write(b"".join(pixels.tobytes() for _, pixels in good))
            files["hashes.bin"].write(b"".join(content_hash(pixels) for _, pixels in good))
            files["rows.bin"].write(np.array([row for row, _ in good], np.int64).tobytes())
            done, rows = done + len(block), rows + len(good)
            tell(done, len(listing))
            if number % BLOCKS_PER_NOTE == 0 or done == len(listing) or len(broken) > max_broken:
                for file in files.values():
                    file.flush()
                    os.fsync(file.fileno())
                records.write_json(part / NOTE, {"done": done, "rows": rows, "broken": broken})
            if len(broken) > max_broken:
                raise too_many(broken, max_broken)
    finally:
        for file in files.values():
            file.close()
    records.write_json(part / ARRAY, {"format": FORMAT, "shape": [rows, *reading.shape], "broken": broken})


def _noted(part: Path, row_bytes: dict[str, int]) -> tuple[int, int, dict[str, str]]:
    """How far it got before it was stopped."""
    try:
        noted = json.loads((part / NOTE).read_bytes())
        done, rows, broken = int(noted["done"]), int(noted["rows"]), dict(noted["broken"])
        if all((part / name).stat().st_size >= rows * size for name, size in row_bytes.items()):
            return done, rows, broken
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return 0, 0, {}


def content_hash(pixels: Pixels) -> bytes:
    return hashlib.blake2b(pixels.tobytes(), digest_size=HASH_SIZE).digest()


def same_content(
    first: npt.NDArray[np.uint64], second: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Places in both of what is in both, each content once."""
    _, mine, theirs = np.intersect1d(first, second, return_indices=True)
    return mine.astype(np.int64), theirs.astype(np.int64)
