"""The ramp and the learning rate, at the steps where the paper says that something happens."""

import math

import pytest

from cissl.schedules import learning_rate, ramp


def test_the_ramp_rises_from_almost_nothing_to_one():
    assert ramp(0, 200_000) == pytest.approx(math.exp(-5))
    assert ramp(1, 4) == pytest.approx(math.exp(-5 * 0.75**2))
    assert ramp(100_000, 200_000) == pytest.approx(math.exp(-1.25))
    assert ramp(199_999, 200_000) < 1
    assert ramp(200_000, 200_000) == ramp(200_001, 200_000) == ramp(500_000, 200_000) == 1
    values = [ramp(step, 2000) for step in range(1, 2001)]
    assert values == sorted(set(values))


def test_no_ramp_is_full_weight_from_the_first_step():
    assert ramp(1, 0) == 1


def test_the_images_learning_rate_is_a_cosine_over_600k_of_which_500k_are_taken():
    at = {step: learning_rate("cosine", step, 500_000) for step in (1, 200_001, 300_001, 400_001, 500_000)}
    assert at[1] == 1
    assert at[200_001] == pytest.approx(0.75)  # a third of the 600k
    assert at[300_001] == pytest.approx(0.5)
    assert at[400_001] == pytest.approx(0.25)
    assert at[500_000] == pytest.approx(0.5 * (1 + math.cos(math.pi * 499_999 / 600_000)), rel=1e-12)
    assert 0.06 < at[500_000] < 0.07  # never at rest


def test_the_toys_learning_rate_falls_once_4000_iterations_are_done():
    """'0.1 decaying at 4,000 iterations multiplied by 0.2': counted as the cosine counts, by iterations that are done,
    so the 4,000th is the last at 0.1."""
    assert {learning_rate("step", step, 5000) for step in range(1, 4001)} == {1.0}
    assert {learning_rate("step", step, 5000) for step in range(4001, 5001)} == {0.2}


@pytest.mark.parametrize("steps", [1, 2, 5, 35, 1000, 4999, 20_000])
def test_a_shorter_run_has_the_same_schedules_in_its_own_time(steps):
    factors = [learning_rate("step", step, steps) for step in range(1, steps + 1)]
    assert factors.count(1.0) == math.ceil(0.8 * steps)
    assert learning_rate("cosine", steps + 1, steps) == pytest.approx(0.5 * (1 + math.cos(math.pi / 1.2)))
    assert {learning_rate("constant", step, steps) for step in range(1, steps + 1)} == {1.0}
