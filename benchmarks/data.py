"""Views per second on one thread: whole batches against a loop over samples. Prints one JSON line.

Both make the same kind of view (flip, reflect-pad 2 + crop, noise 0.15) of float32 3 x 32 x 32 images in batches of
100. They are measured in turns, so that whatever else the machine does hits both alike; the median round counts.
"""

import json
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from cissl.views import Views

BATCH, ROUNDS = 100, 30


def loop(images: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
    """What a data set's `__getitem__` does for one image after the other, stacked to a batch."""
    views = []
    for image in images:
        if rng.random() < 0.5:
            image = image[:, :, ::-1]
        padded = np.pad(image, ((0, 0), (2, 2), (2, 2)), mode="reflect")
        top, left = rng.integers(0, 5, 2)
        view = padded[:, top : top + 32, left : left + 32]
        views.append(torch.from_numpy(view + 0.15 * rng.standard_normal(view.shape, dtype=np.float32)))
    return torch.stack(views)


def rate(make: Callable[[], torch.Tensor], batches: int) -> tuple[float, float]:
    """Images per second of wall time and of this process's CPU time."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(batches):
        make()
    count = BATCH * batches
    return count / (time.perf_counter() - wall), count / (time.process_time() - cpu)


def main() -> None:
    """Measure in turns and print the line."""
    torch.set_num_threads(1)
    x = torch.randn(BATCH, 3, 32, 32)
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    whole, crop_only = Views(flip=True, crop=2, noise=0.15), Views(crop=2)
    makers = {
        "flip_crop_noise": (lambda: whole(x, generator), 20),
        "crop": (lambda: crop_only(x, generator), 20),
        "per_sample_loop": (lambda: loop(x.numpy(), rng), 2),
    }
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
    for number in range(ROUNDS + 1):
        for name, (make, batches) in makers.items():
            measured = rate(make, batches)
            if number:  # the first round warms up
                rates[name].append(measured)
    line: dict[str, object] = {"benchmark": "data", "batch": BATCH, "threads": 1, "cpu": platform.machine()}
    for name, values in rates.items():
        line[f"{name}_images_per_second"] = round(statistics.median(v[0] for v in values))
        line[f"{name}_images_per_cpu_second"] = round(statistics.median(v[1] for v in values))
    fast, slow = (statistics.median(v[0] for v in rates[n]) for n in ("flip_crop_noise", "per_sample_loop"))
    line["ratio_to_loop"] = round(fast / slow, 1)
    print(json.dumps(line))


if __name__ == "__main__":
    main()
