"""Checkpoints: whole or not there, checked when they are read, the last two kept. Reading one runs no code from it."""

import contextlib
import hashlib
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cissl.records import write_whole

MAGIC = b"cissl checkpoint 1\n"
KEPT = 2
DIGEST_SIZE = hashlib.sha256().digest_size


def save(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Write beside, flush, rename; only then is the oldest removed, so that a full disk costs nothing."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    whole = MAGIC + hashlib.sha256(payload).digest() + payload
    write_whole(folder / f"checkpoint-{step:09d}.pt", lambda file: file.write(whole))
    for old in newest_first(folder)[KEPT:]:
        old.unlink(missing_ok=True)


def newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoint-*.pt"), reverse=True)


def load(folder: Path, say: Callable[[str], object]) -> dict[str, Any] | None:
    """The newest whole checkpoint, None if there is none. A damaged one is passed over, and said."""
    for path in newest_first(folder):
        try:
            return read(path)
        except (OSError, ValueError) as error:
            say(f"{path} cannot be used ({error}): going on from the one before it, if there is one")
    return None


def read(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    digest, payload = content[len(MAGIC) : len(MAGIC) + DIGEST_SIZE], content[len(MAGIC) + DIGEST_SIZE :]
    if not content.startswith(MAGIC):
        raise ValueError("not a checkpoint of this version")
    if hashlib.sha256(payload).digest() != digest:
        raise ValueError("its checksum is wrong: torn or damaged")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError) as error:
        raise ValueError(str(error).splitlines()[0]) from error
    return state


def remove(folder: Path) -> None:
    """When the result is there, nothing is left to go on from."""
    for path in newest_first(folder):
        with contextlib.suppress(OSError):
            path.unlink()
