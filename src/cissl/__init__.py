"""Class-imbalanced semi-supervised learning."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cissl.estimator import CISSLClassifier
    from cissl.execution import execute, execute_seeds
    from cissl.losses import SuppressedConsistencyLoss
    from cissl.model_folder import load
    from cissl.protocol import Split, class_counts, split
    from cissl.run import Run

__all__ = [
    "CISSLClassifier",
    "Run",
    "Split",
    "SuppressedConsistencyLoss",
    "class_counts",
    "execute",
    "execute_seeds",
    "load",
    "split",
]

# Imported when first asked for: `import cissl` costs no torch.
_HOMES = {
    "CISSLClassifier": "cissl.estimator",
    "Run": "cissl.run",
    "Split": "cissl.protocol",
    "SuppressedConsistencyLoss": "cissl.losses",
    "class_counts": "cissl.protocol",
    "execute": "cissl.execution",
    "execute_seeds": "cissl.execution",
    "load": "cissl.model_folder",
    "split": "cissl.protocol",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'cissl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
