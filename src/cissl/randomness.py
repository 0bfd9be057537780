"""Where every random number of a run comes from: a seed for each (run seed, stream, step)."""

import hashlib


def stream(seed: int, name: str, step: int = 0) -> int:
    """The seed of one stream of draws at one step, to be given to a fresh numpy or torch generator.

    Streams are independent, so a new draw in one never moves another, and nothing but the step number is needed
    to go on after a restart: no generator state is ever saved.
    """
    digest = hashlib.blake2b(f"{seed}/{name}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # 63 bits: torch takes signed, numpy unsigned seeds
