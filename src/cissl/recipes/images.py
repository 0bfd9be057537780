"""Tables 2, 3 and 4: the paper's grids on CIFAR-10 and SVHN. Their shared cells are the same runs."""

from collections.abc import Sequence
from typing import Any, get_args

from cissl import protocol
from cissl.methods import PAPER, method, named
from cissl.names import unknown
from cissl.objective import Reweight
from cissl.recipes.grids import grid
from cissl.run import Run

IMBALANCES = [10, 20, 50, 100]
LABELS: dict[str, list[int]] = {"cifar10": [1000, 2000, 4000], "svhn": [250, 500, 1000]}
UNLABELED = list(protocol.UNLABELED_TYPES)
REWEIGHTS: list[Reweight] = list(get_args(Reweight))


def imbalance_factor(
    dataset: str = "cifar10", methods: Sequence[str] = PAPER, seeds: int = 5, **fields: Any
) -> list[Run]:
    """Table 2: eight methods, four imbalance factors, three kinds of unlabeled data, CIFAR-10 or SVHN."""
    setting = {"labeled": labels(dataset)[-1], "imbalance": IMBALANCES, "unlabeled": UNLABELED}
    return grid(seeds, methods, dataset=dataset, **{**setting, **fields})


def label_count(dataset: str = "cifar10", methods: Sequence[str] = PAPER, seeds: int = 5, **fields: Any) -> list[Run]:
    """Table 4: eight methods, three numbers of labels at ρ = 100, three kinds of unlabeled data, CIFAR-10 or SVHN."""
    setting = {"labeled": labels(dataset), "imbalance": 100, "unlabeled": UNLABELED}
    return grid(seeds, methods, dataset=dataset, **{**setting, **fields})


def reweighting(dataset: str = "cifar10", methods: Sequence[str] = PAPER, seeds: int = 5, **fields: Any) -> list[Run]:
    """Table 3: seven methods, four re-weightings at ρ = 100, three kinds of unlabeled data, CIFAR-10 or SVHN."""
    setting = {"labeled": labels(dataset)[-1], "imbalance": 100, "unlabeled": UNLABELED, "reweight": REWEIGHTS}
    return grid(seeds, reweightable(methods), dataset=dataset, **{**setting, **fields})


def reweightable(methods: Sequence[str]) -> list[str]:
    """Those of the methods whose labeled loss is of single classes: not ICT, which the paper leaves out too."""
    return [name for name in named(methods) if not method(name).base.mixes_labels]


def labels(dataset: str) -> list[int]:
    """The paper's numbers of labels; the last is that of the tables that are not about it."""
    if dataset not in LABELS:
        raise unknown("data set of this study:", dataset, LABELS)
    return LABELS[dataset]
