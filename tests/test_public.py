"""The package's public names."""

import importlib
import inspect

import pytest

import cissl


@pytest.mark.parametrize("name", cissl.__all__)
def test_a_public_name_is_there_listed_and_described(name):
    thing = getattr(cissl, name)
    assert name in dir(cissl)
    assert (inspect.getdoc(thing) or "").strip(), f"cissl.{name} does not say what it is for"
    home = importlib.import_module(thing.__module__)
    assert home.__name__.startswith("cissl.")
    assert getattr(home, name) is thing


def test_public_names_are_in_order_and_once():
    assert list(cissl.__all__) == sorted(set(cissl.__all__))
    assert set(dir(cissl)) == {*cissl.__all__, "__version__"}


def test_everything_can_be_imported_at_once():
    names = {}
    exec("from cissl import *", names)
    assert set(cissl.__all__) <= names.keys()


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'cissl' has no attribute 'nonsense'"):
        _ = cissl.nonsense
    with pytest.raises(ImportError, match="nonsense"):
        exec("from cissl import nonsense")


def test_the_version_is_a_version():
    assert [part.isdigit() for part in cissl.__version__.split(".")] == [True] * 3
