"""Table 5: five ways to train SSD300 on PASCAL VOC; and the same on shapes that a processor can train on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from cissl import records
from cissl.detection.description import DetectionRun, Method
from cissl.names import unknown
from cissl.run import Description

METHODS: tuple[str, ...] = get_args(Method)


def detection(
    dataset: str = "voc", methods: Sequence[str] = METHODS, seeds: int = 3, **fields: Any
) -> list[DetectionRun]:
    """Table 5: object detection, five methods, PASCAL VOC; --dataset shapes needs no download and no GPU."""
    if seeds < 1:
        raise ValueError(f"a study needs at least 1 seed, got {seeds}")
    chosen = METHODS if list(methods) == ["all"] else methods
    for name in chosen:
        if name not in METHODS:
            raise unknown("method of detection", name, METHODS)
    setting: dict[str, Any] = {"dataset": dataset, **fields}
    return [DetectionRun(**{**setting, "method": name, "seed": seed}) for name in chosen for seed in range(seeds)]


def analyse(runs: Sequence[Description], folder: Path, data_dir: Path | None) -> None:
    """The numbers of objects of each class, labeled and unlabeled, written to `folder/analysis`."""
    from cissl.detection.training import load

    for run in runs:
        if isinstance(run, DetectionRun):
            data = load(run, data_dir, unlabeled=True)
            counts = {"labeled": np.array(data.labeled_counts), "unlabeled": np.array(data.unlabeled_counts)}
            names = np.array(data.class_names)
            records.write_arrays(folder / "analysis" / "class_distribution.npz", {"class_names": names, **counts})
            return
