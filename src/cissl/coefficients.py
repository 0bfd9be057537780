"""How much each past gradient counts in the student and in its moving average (the paper's supplement, section B).

After t steps of SGD with momentum δ from θ₀, θ_t = θ₀ − α Σ_k s(t − k) ∇J(θ_k); the teacher with decay γ has
θ′_t = θ₀ − α Σ_k s′(t − k) ∇J(θ_k). Every function returns its coefficient for k = 0, …, t − 1. Momentum 0 is plain
SGD: 1 against 1 − γ^(t−k). (The paper prints the exponent t − k − 1 there, one less than its own update gives.)
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def student_coefficient(steps: int, momentum: float) -> Float[np.ndarray, " steps"]:
    """s(t − k) = (1 − δ^(t−k)) / (1 − δ): the coefficient of ∇J(θ_k) in the student after `steps` steps."""
    _check(steps, momentum, 0.0)
    return _powers_up_to(_ages(steps), 1 - momentum)


def coefficient_difference(steps: int, momentum: float, decay: float) -> Float[np.ndarray, " steps"]:
    """Student's coefficient minus teacher's: never negative, the teacher is the slower target.

    The supplement's difference D(n) = s(n) − s′(n), with n = t − k, obeys D(n) = γ (D(n−1) + δ^(n−1)), so it is
    γ Σ_{i<n} γ^(n−1−i) δ^i. As such it has no subtraction that could cancel, also where δ = γ or both are near 1.
    """
    _check(steps, momentum, decay)
    ages = _ages(steps)
    larger, smaller = max(momentum, decay), min(momentum, decay)
    if larger == 0:
        return np.zeros(steps)
    return np.asarray(decay * larger ** (ages - 1) * _powers_up_to(ages, (larger - smaller) / larger))


def teacher_coefficient(steps: int, momentum: float, decay: float) -> Float[np.ndarray, " steps"]:
    """s′(t − k): the coefficient of ∇J(θ_k) in the teacher, whose decay is γ = `decay`, after `steps` steps."""
    return np.asarray(student_coefficient(steps, momentum) - coefficient_difference(steps, momentum, decay))


def _ages(steps: int) -> Float[np.ndarray, " steps"]:
    """n = t − k, how many steps ago the gradient was taken, for k = 0, …, t − 1."""
    return np.arange(steps, 0, -1, dtype=np.float64)


def _powers_up_to(n: Float[np.ndarray, " steps"], gap: float) -> Float[np.ndarray, " steps"]:
    """Σ_{i<n} r^i for r = 1 − gap in [0, 1]. Takes the gap, which a caller may know more exactly than r."""
    if gap == 0:
        return n.copy()
    if gap == 1:
        return np.ones_like(n)
    # 1 − r^n through expm1 and log1p: as written it would lose every digit for r close to 1.
    return np.asarray(-np.expm1(n * np.log1p(-gap)) / gap)


def _check(steps: int, momentum: float, decay: float) -> None:
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}: a coefficient belongs to a gradient already taken")
    for name, value in (("momentum", momentum), ("decay", decay)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value}")
