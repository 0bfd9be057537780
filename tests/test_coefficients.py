"""The supplementary coefficients against the printed double sum and against runs of the optimizer itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cissl.coefficients import coefficient_difference, student_coefficient, teacher_coefficient

inside = st.floats(0, 1, exclude_min=True, exclude_max=True)


def teacher_as_printed(steps: int, momentum: float, decay: float) -> list[float]:
    """The second term of the supplement's inequality, written as printed (Σ of powers instead of the fraction)."""
    return [
        sum(
            (1 - decay) * decay ** (steps - k - j - 1) * sum(momentum**i for i in range(j + 1))
            for j in range(steps - k)
        )
        for k in range(steps)
    ]


@pytest.mark.parametrize(
    ("momentum", "decay"),
    [(0.9, 0.95), (0.95, 0.9), (0.9, 0.9), (0.0, 0.95), (0.9, 0.0), (0.0, 0.0), (1.0, 0.95), (0.9, 1.0), (1.0, 1.0)],
)
def test_equals_the_double_sum(momentum: float, decay: float) -> None:
    steps = 40
    student = [sum(momentum**i for i in range(steps - k)) for k in range(steps)]
    teacher = teacher_as_printed(steps, momentum, decay)
    np.testing.assert_allclose(student_coefficient(steps, momentum), student, rtol=1e-13)
    np.testing.assert_allclose(teacher_coefficient(steps, momentum, decay), teacher, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        coefficient_difference(steps, momentum, decay), np.subtract(student, teacher), rtol=1e-11, atol=1e-13
    )


@pytest.mark.parametrize(("momentum", "decay"), [(0.9, 0.95), (0.0, 0.95), (0.95, 0.95), (0.5, 0.999)])
def test_equals_a_run_of_sgd_with_momentum_and_a_moving_average(momentum: float, decay: float) -> None:
    steps, rate = 60, 0.1
    gradients = np.random.default_rng(0).standard_normal((steps, 3))
    start = np.array([1.0, -2.0, 3.0])
    student, teacher, velocity = start.copy(), start.copy(), np.zeros(3)
    for gradient in gradients:
        velocity = momentum * velocity + rate * gradient
        student = student - velocity
        teacher = decay * teacher + (1 - decay) * student
    np.testing.assert_allclose(start - rate * student_coefficient(steps, momentum) @ gradients, student, rtol=1e-11)
    np.testing.assert_allclose(
        start - rate * teacher_coefficient(steps, momentum, decay) @ gradients, teacher, rtol=1e-11
    )
    gap = rate * coefficient_difference(steps, momentum, decay) @ gradients
    np.testing.assert_allclose(teacher - student, gap, rtol=1e-11, atol=1e-13)


@settings(max_examples=200, deadline=None)
@given(steps=st.integers(1, 500), momentum=inside, decay=inside)
def test_the_teacher_is_never_the_faster_one(steps: int, momentum: float, decay: float) -> None:
    difference = coefficient_difference(steps, momentum, decay)
    assert difference.shape == (steps,)
    assert np.isfinite(difference).all()
    assert (difference >= 0).all()
    student = student_coefficient(steps, momentum)
    teacher = teacher_coefficient(steps, momentum, decay)
    assert (teacher >= -1e-12 * student).all()
    assert (teacher <= student).all()


@settings(max_examples=100, deadline=None)
@given(momentum=st.floats(0, 1), decay=st.floats(0, 1))
def test_obeys_its_recurrence_up_to_the_last_digits(momentum: float, decay: float) -> None:
    by_age = coefficient_difference(200, momentum, decay)[::-1]
    expected, previous = [], 0.0
    for n in range(1, 201):
        previous = decay * (previous + momentum ** (n - 1))
        expected.append(previous)
    np.testing.assert_allclose(by_age, expected, rtol=1e-11, atol=1e-300)


def test_equal_and_nearly_equal_momentum_and_decay_agree() -> None:
    equal = coefficient_difference(1000, 0.95, 0.95)
    for shift in (1e-15, 1e-12, -1e-12):
        np.testing.assert_allclose(coefficient_difference(1000, 0.95 + shift, 0.95), equal, rtol=1e-8)


def test_momentum_close_to_one_keeps_its_digits() -> None:
    # Σ_{i<n} (1 − ε)^i ≈ n − ε n (n − 1) / 2
    n, epsilon = np.arange(100, 0, -1.0), 1e-12
    np.testing.assert_allclose(
        student_coefficient(100, 1 - epsilon), n - (1 - (1 - epsilon)) * n * (n - 1) / 2, rtol=1e-15
    )


def test_a_wrong_argument_says_what_was_expected() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        coefficient_difference(0, 0.9, 0.95)
    with pytest.raises(ValueError, match=r"momentum must be between 0 and 1, got 1\.5"):
        student_coefficient(10, 1.5)
    with pytest.raises(ValueError, match=r"decay must be between 0 and 1, got -0\.1"):
        teacher_coefficient(10, 0.9, -0.1)
