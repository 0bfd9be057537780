"""For test_execution.py: train one run in a process of its own, to be killed, on one thread."""

import sys
from pathlib import Path


def train(folder, description, log):
    import torch

    from cissl.execution import Machine, execute
    from cissl.run import Run

    torch.set_num_threads(1)
    sys.stderr = Path(log).open("a", buffering=1)  # noqa: SIM115 - until the process ends
    execute(Run(**description), Path(folder), machine=Machine(accelerator="cpu", checkpoint_every=7))
