"""How much memory a million small images take: an array on disk as `cissl train --images` decodes it, a few training
steps on it, predictions for all of it. One JSON line; exit status 1 where the peak is above --limit-gb.

The peak is that of the process's resident memory, the mapped pages of the array among it.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import cissl

LABELED, CLASSES, BLOCK = 1000, 4, 10_000


def make(path: Path, images: int, size: int, channels: int) -> np.memmap:
    """Noise, brighter in the rows of its class; written block by block."""
    rng = np.random.default_rng(0)
    made = np.memmap(path, np.uint8, "w+", shape=(images, size, size, channels))
    for start in range(0, images, BLOCK):
        count = min(BLOCK, images - start)
        block = rng.integers(0, 160, (count, size, size, channels), dtype=np.uint8)
        classes = np.arange(start, start + count) % CLASSES
        rows = np.arange(size) * CLASSES // size
        block[classes[:, None] == rows] += 90
        made[start : start + count] = block
    made.flush()
    return np.memmap(path, np.uint8, "r", shape=made.shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--channels", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--limit-gb", type=float, default=4.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        x = make(Path(folder) / "images.bin", asked.images, asked.size, asked.channels)
        y = np.full(len(x), -1)
        y[:LABELED] = np.arange(LABELED) % CLASSES
        started = time.perf_counter()
        classifier = cissl.CISSLClassifier(steps=asked.steps, network="convnet", random_state=0).fit(x, y)
        seconds = time.perf_counter() - started
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
    found = {
        "images": asked.images,
        "array_gb": round(x.nbytes / 1e9, 3),
        "peak_gb": round(peak, 2),
        "limit_gb": asked.limit_gb,
        "steps": asked.steps,
        "predicted": len(classifier.transduction_),
        "seconds": round(seconds, 1),
    }
    print(json.dumps(found))
    sys.exit(peak > asked.limit_gb)


if __name__ == "__main__":
    main()
