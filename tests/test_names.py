"""A name that does not exist: which ones do, the nearest first."""

import pytest

from cissl.names import unknown

NAMES = ["two-moons", "four-spins", "CIFAR"]


@pytest.mark.parametrize(
    ("name", "nearest"), [("two-moon", "two-moons"), ("FOUR_SPINS", "four-spins"), ("cifar10", "CIFAR")]
)
def test_the_nearest_name_is_offered(name, nearest):
    error = unknown("data set", name, NAMES)
    assert str(error) == (
        f"unknown data set {name!r}: did you mean {nearest!r}? Choose from: two-moons, four-spins, CIFAR"
    )


@pytest.mark.parametrize("name", ["xyz", "", 3, None])
def test_nothing_is_offered_for_what_is_near_to_nothing(name):
    assert str(unknown("data set", name, NAMES)) == (
        f"unknown data set {name!r}. Choose from: two-moons, four-spins, CIFAR"
    )


def test_there_may_be_nothing_to_choose_from():
    assert str(unknown("option", "a", iter(()))) == "unknown option 'a'. Choose from: none"
