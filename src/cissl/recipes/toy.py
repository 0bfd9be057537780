"""Table 1 and Figure 1: four methods on two-moons and four-spins; and the figures of the paper's analysis."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cissl import analysis, losses, records
from cissl.execution import one_thread
from cissl.randomness import stream
from cissl.recipes.grids import grid
from cissl.run import Description, Run
from cissl.task import prepare

DATASETS = ("two-moons", "four-spins")
METHODS = ("supervised", "pi", "mean-teacher", "mean-teacher+scl")


def toy(methods: Sequence[str] = METHODS, seeds: int = 5, **fields: Any) -> list[Run]:
    """Table 1 and Figure 1: two-moons and four-spins, four methods, well under a minute on two cores."""
    return grid(seeds, methods, **{"dataset": DATASETS, **fields})


def analyse(runs: Sequence[Description], folder: Path) -> None:
    """What the figures of the analysis show, written to `folder/analysis`."""
    ratio = np.linspace(0, 1, 101)
    lines: dict[str, tuple[float, losses.SuppressionForm]] = {}
    for beta in (0.1, 0.3, 0.5, 0.7, 0.9):
        lines[f"exponential, β = {beta:g}"] = (beta, "exponential")
    lines["linear"] = (0.5, "linear")
    counts = torch.from_numpy(ratio)
    weights = [losses.suppression_weights(counts, beta, form).numpy() for beta, form in lines.values()]
    records.write_arrays(
        folder / "analysis" / "suppression.npz", {"ratio": ratio, "labels": np.array(list(lines)), "weights": weights}
    )
    for run in runs:
        if isinstance(run, Run) and (run.dataset, run.method) == ("two-moons", "mean-teacher"):
            weights_file = folder / run.name / "weights.npz"
            if weights_file.is_file():  # not there when the run diverged
                measured = gradient_difference(run, weights_file)
                records.write_arrays(folder / "analysis" / "gradient_difference.npz", measured)
                return


def gradient_difference(run: Run, weights_file: Path, points: int = 1500) -> dict[str, npt.NDArray[Any]]:
    """Mean Teacher's gradient against Π's at unlabeled points, with the trained student and teacher of a run."""
    task = prepare(run)
    student, teacher = task.student, task.teacher()
    assert teacher is not None
    with np.load(weights_file) as saved:
        for who, network in (("student", student), ("teacher", teacher)):
            network.load_state_dict({n: torch.from_numpy(saved[f"{who}/{n}"]) for n in network.state_dict()})
    unlabeled = task.split.unlabeled
    x = torch.from_numpy(task.data.train_x[unlabeled[:: max(1, len(unlabeled) // points)]])
    noise = torch.Generator().manual_seed(stream(run.seed, "analysis"))
    with one_thread():  # many tiny operations: on several threads they mostly wait for each other
        measured = analysis.gradient_difference(student.double(), teacher.double(), x.double(), run.noise, noise)
    return {"points": x.numpy(), **measured}
