"""Fashion-MNIST with few, very imbalanced labels: the paper's question on real images that a processor can train on."""

from collections.abc import Sequence
from typing import Any

from cissl.recipes.grids import grid
from cissl.run import Run

METHODS = ("supervised", "pi", "mean-teacher", "mean-teacher+scl")


def fashion(methods: Sequence[str] = METHODS, seeds: int = 5, **fields: Any) -> list[Run]:
    """Fashion-MNIST, 250 labels, ρ = 100, uniform unlabeled data, four methods, about an hour on two cores."""
    setting = {"dataset": "fashion-mnist", "imbalance": 100, "unlabeled": "uniform"}
    return grid(seeds, methods, **{**setting, **fields})
