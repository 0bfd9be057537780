"""Fashion-MNIST with few, very imbalanced labels: the paper's question on real images that a processor can train on."""

from collections.abc import Sequence
from typing import Any

from cissl.methods import named
from cissl.run import Run

METHODS = ("supervised", "pi", "mean-teacher", "mean-teacher+scl")


def fashion(seeds: int = 5, methods: Sequence[str] = METHODS, steps: int | None = None) -> list[Run]:
    """250 labels, ρ = 100, uniform unlabeled data, 4,000 steps of the small convnet: minutes a run."""
    shorter: dict[str, Any] = {} if steps is None else {"steps": steps}
    return [
        Run(dataset="fashion-mnist", imbalance=100, unlabeled="uniform", method=name, seed=seed, **shorter)
        for name in named(methods)
        for seed in range(seeds)
    ]
