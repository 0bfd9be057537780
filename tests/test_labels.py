"""Labels as people have them: every way to say "none", and what cannot be a label."""

import numpy as np
import pandas
import polars
import pytest
import torch

from cissl.labels import read_labels

NAN = float("nan")


@pytest.mark.parametrize(
    ("labels", "codes", "classes"),
    [
        ([3, -1, 1, 3], [1, -1, 0, 1], [1, 3]),
        (np.array([3, -1, 1], np.int8), [1, -1, 0], [1, 3]),
        (np.array([0.0, NAN, 1.0, -1.0]), [0, -1, 1, -1], [0.0, 1.0]),
        (np.array([7, 2], np.uint8), [1, 0], [2, 7]),
        ([True, False, None], [1, 0, -1], [False, True]),
        (["b", "a", None, NAN, ""], [1, 0, -1, -1, -1], ["a", "b"]),
        (np.array(["b", "", "a"]), [1, -1, 0], ["a", "b"]),
        (np.array([2, None, 5, -1], object), [0, -1, 1, -1], [2, 5]),
        (np.array([[1], [2]]).ravel().tolist(), [0, 1], [1, 2]),
        (pandas.Series(["x", None, "y"]), [0, -1, 1], ["x", "y"]),
        (pandas.Series([4, None, 5], dtype="Int64"), [0, -1, 1], [4, 5]),
        (pandas.Series(["x", None, "y"], dtype="category"), [0, -1, 1], ["x", "y"]),
        (polars.Series(["x", None, "y"]), [0, -1, 1], ["x", "y"]),
        (polars.Series([1, None, 0]), [1, -1, 0], [0, 1]),
        (torch.tensor([5, -1, 4]), [1, -1, 0], [4, 5]),
        (["-1", "1"], [0, 1], ["-1", "1"]),  # texts are names
    ],
)
def test_what_is_no_label_has_number_minus_one(labels, codes, classes):
    found, named = read_labels(labels, len(labels))
    assert found.tolist() == codes
    assert named.tolist() == classes


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([-1, -1], "no sample in y has a label"),
        ([NAN, NAN], "no sample in y has a label"),
        ([None, ""], "no sample in y has a label"),
        ([1, 1, -1], "one class only, 1"),
        ([0.3, 0.7], "continuous"),
        ([0.0, np.inf], "infinity"),
        ([1, "a"], r"several kinds \(int, str\)"),
        ([[0, 1], [1, 0]], "1d array"),
    ],
)
def test_what_cannot_be_labels_is_explained(labels, message):
    with pytest.raises(ValueError, match=message):
        read_labels(labels, len(labels))


def test_there_is_a_label_for_each_sample():
    with pytest.raises(ValueError, match="3 samples in X and 2 labels in y: give one label for each sample"):
        read_labels([0, 1], 3)
