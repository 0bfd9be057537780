"""Two methods over the same seeds: pure functions of numbers that belong together in pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

CONFIDENCE = 0.95
WILCOXON_FROM = 6  # pairs that differ: with fewer no result could reach p < 0.05


@dataclass(frozen=True)
class Paired:
    """Ours minus the baseline's over the seeds that both have. None where there is nothing to take it of: no interval
    for a single seed, no test where every seed differs by the same."""

    seeds: int
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_t: float | None = None
    p_wilcoxon: float | None = None
    better: int = 0
    equal: int = 0


def paired(ours: Sequence[float], baseline: Sequence[float], higher_is_better: bool = False) -> Paired:
    """Difference with a 95 % confidence interval, paired t test and Wilcoxon's signed ranks, both two-sided."""
    if len(ours) != len(baseline):
        raise ValueError(
            f"expected numbers in pairs, got {len(ours)} and {len(baseline)}: take the seeds that both have"
        )
    n = len(ours)
    if n == 0:
        return Paired(0)
    # Two that read the same are the same: fractions made into per cents leave crumbs.
    differences = np.round(np.subtract(ours, baseline, dtype=np.float64), 9)
    mean = float(differences.mean())
    won = differences > 0 if higher_is_better else differences < 0
    low, high, p_t = _t(differences)
    return Paired(n, mean, low, high, p_t, _wilcoxon(differences), int(won.sum()), int((differences == 0).sum()))


def _t(differences: np.ndarray) -> tuple[float | None, float | None, float | None]:
    """Limits of the confidence interval and p of Student's t."""
    n, mean = len(differences), float(differences.mean())
    if n < 2:
        return None, None, None
    if np.ptp(differences) == 0:
        return mean, mean, None
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    reach = float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * error
    return mean - reach, mean + reach, float(2 * special.stdtr(n - 1, -abs(mean / error)))


def _wilcoxon(differences: np.ndarray) -> float | None:
    """p of the signed ranks of those pairs that differ."""
    differing = differences[differences != 0]
    if len(differing) < WILCOXON_FROM:
        return None
    from scipy import stats  # takes a while to import, and most studies have too few seeds for it

    return float(stats.wilcoxon(differing).pvalue)
