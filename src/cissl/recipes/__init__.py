"""The studies: functions that return a list of runs. Their first sentence is what `cissl list` says of them.

Each takes `methods` (["all"] are the paper's eight), `seeds` (how many, from 0), and any field of a run.
"""

from collections.abc import Callable, Sequence

from cissl.recipes.detection import detection
from cissl.recipes.digits import digits
from cissl.recipes.fashion import fashion
from cissl.recipes.images import imbalance_factor, label_count, reweighting
from cissl.recipes.toy import toy
from cissl.run import Description

__all__ = ["STUDIES", "detection", "digits", "fashion", "imbalance_factor", "label_count", "reweighting", "toy"]

STUDIES: dict[str, Callable[..., Sequence[Description]]] = {
    "toy": toy,
    "digits": digits,
    "fashion": fashion,
    "imbalance-factor": imbalance_factor,
    "label-count": label_count,
    "reweighting": reweighting,
    "detection": detection,
}
