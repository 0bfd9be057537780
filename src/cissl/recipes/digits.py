"""The paper's whole comparison on scikit-learn's small images: no download, no GPU."""

from collections.abc import Sequence
from typing import Any

from cissl.methods import PAPER
from cissl.recipes.grids import grid
from cissl.recipes.images import REWEIGHTS, UNLABELED, reweightable
from cissl.run import Run


def digits(methods: Sequence[str] = PAPER, seeds: int = 5, **fields: Any) -> list[Run]:
    """scikit-learn's digits, 100 labels, ρ = 10: eight methods, three kinds of unlabeled data, four re-weightings."""
    setting = {"dataset": "digits", "unlabeled": UNLABELED, **fields}
    weighted = [reweight for reweight in REWEIGHTS if reweight != "ce"]
    return grid(seeds, methods, **setting) + grid(seeds, reweightable(methods), **{"reweight": weighted, **setting})
