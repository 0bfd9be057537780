"""The metrics: each number against scikit-learn's, or against a loop where it has none."""

import json
import math

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from cissl.metrics import average_precision, calibration_error, confusion_matrix, evaluate, summarise


def example(n=500, k=6, seed=0, sharpness=1.0):
    """Predictions somewhat better than chance, on unequal classes."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(k, size=n, p=np.arange(k, 0, -1) / np.arange(k + 1).sum())
    labels[:k] = np.arange(k)
    logits = rng.normal(size=(n, k)) + 1.5 * np.eye(k)[labels]
    probabilities = np.exp(sharpness * logits)
    return probabilities / probabilities.sum(1, keepdims=True), labels, np.arange(k, 0, -1)


@pytest.mark.parametrize(("k", "seed"), [(2, 0), (3, 1), (6, 2), (10, 3)])
def test_every_number_is_that_of_scikit_learn(k, seed):
    probabilities, labels, counts = example(k=k, seed=seed)
    predicted = probabilities.argmax(1)
    found = evaluate(probabilities, labels, counts)
    classes = range(k)
    reference = sklearn.metrics
    recall = reference.recall_score(labels, predicted, average=None)
    assert found["confusion"] == reference.confusion_matrix(labels, predicted).tolist()
    assert found["error"] == pytest.approx(1 - reference.accuracy_score(labels, predicted))
    assert found["balanced_error"] == pytest.approx(1 - reference.balanced_accuracy_score(labels, predicted))
    assert found["recall"] == pytest.approx(recall)
    assert found["precision"] == pytest.approx(reference.precision_score(labels, predicted, average=None))
    assert found["f1"] == pytest.approx(reference.f1_score(labels, predicted, average=None))
    assert found["macro_f1"] == pytest.approx(reference.f1_score(labels, predicted, average="macro"))
    assert found["average_precision"] == pytest.approx(
        [reference.average_precision_score(labels == c, probabilities[:, c]) for c in classes]
    )
    assert found["geometric_mean"] == pytest.approx(math.prod(recall) ** (1 / k))


def test_average_precision_of_tied_scores_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = rng.integers(0, 4, size=12) / 4
        positive = rng.random(12) < 0.4
        positive[0] = True
        expected = sklearn.metrics.average_precision_score(positive, scores)
        assert average_precision(scores, positive) == pytest.approx(expected)


def slow_calibration_error(confidence, correct, bins=15):
    total = 0.0
    for b in range(bins):
        inside = [i for i, c in enumerate(confidence) if b / bins < c <= (b + 1) / bins]
        if inside:
            accuracy = sum(correct[i] for i in inside) / len(inside)
            mean_confidence = sum(confidence[i] for i in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(accuracy - mean_confidence)
    return total


@pytest.mark.parametrize("sharpness", [0.5, 1, 3])
def test_calibration_error_is_that_of_a_loop(sharpness):
    probabilities, labels, counts = example(sharpness=sharpness)
    expected = slow_calibration_error(probabilities.max(1), probabilities.argmax(1) == labels)
    assert evaluate(probabilities, labels, counts)["calibration_error"] == pytest.approx(expected)


def test_calibration_error_of_known_cases():
    certain, even = np.array([1.0, 1.0, 1.0, 1.0]), np.array([0.5, 0.5, 0.5, 0.5])
    right, half = np.array([True] * 4), np.array([True, False, True, False])
    assert calibration_error(certain, right) == 0
    assert calibration_error(even, half) == 0
    assert calibration_error(certain, half) == 0.5
    # One bin each, (3/8, 4/8] and (4/8, 5/8]: 0.5 belongs to the lower one.
    assert calibration_error(np.array([0.5, 0.625]), np.array([True, False]), bins=8) == pytest.approx(0.5625)
    assert calibration_error(np.array([0.5, 0.4375]), np.array([True, False]), bins=8) == pytest.approx(0.03125)
    assert calibration_error(np.array([0.0, 0.0]), np.array([True, False])) == 0.5
    # The last two of fifteen bins; what rounding puts above 1 belongs to the last.
    assert calibration_error(np.array([1.0, 0.9]), np.array([False, True])) == pytest.approx(0.55)
    assert calibration_error(np.array([1 + 1e-7, 0.95]), np.array([False, True])) == pytest.approx(0.475)


def one_hot(predicted, k):
    return np.eye(k)[predicted]


@pytest.mark.parametrize(
    ("k", "head", "middle", "tail"),
    [
        (2, [0], [], [1]),
        (3, [0], [1], [2]),
        (4, [0], [1, 2], [3]),
        (5, [0, 1], [2], [3, 4]),
        (8, [0, 1, 2], [3, 4], [5, 6, 7]),
        (10, [0, 1, 2], [3, 4, 5, 6], [7, 8, 9]),
    ],
)
def test_groups_by_frequency(k, head, middle, tail):
    rng = np.random.default_rng(k)
    frequent_first = rng.permutation(k)
    counts = np.empty(k, dtype=np.int64)
    counts[frequent_first] = np.arange(k, 0, -1) ** 2
    probabilities, labels, _ = example(k=k)
    found = evaluate(probabilities, labels, counts)
    error = {c: np.mean(probabilities[labels == c].argmax(1) != c) for c in range(k)}
    for name, ranks in (("head", head), ("middle", middle), ("tail", tail), ("major", [0]), ("minor", [k - 1])):
        expected = [error[frequent_first[rank]] for rank in ranks]
        assert found[f"{name}_error"] == (pytest.approx(np.mean(expected)) if expected else None)


def test_equally_frequent_classes_are_ranked_by_number():
    labels = np.array([0, 1, 2])
    found = evaluate(one_hot([0, 0, 0], 3), labels, np.array([5, 5, 5]))
    assert (found["major_error"], found["minor_error"]) == (0, 1)
    found = evaluate(one_hot([0, 0, 2], 3), labels, np.array([5, 9, 5]))
    assert (found["major_error"], found["minor_error"]) == (1, 0)
    # Of 40 classes the odd ones are frequent: 1 is the first of those, 38 the last of the others.
    predicted = np.where(np.isin(np.arange(40), [1, 38]), np.arange(40), 0)
    found = evaluate(one_hot(predicted, 40), np.arange(40, dtype=np.uint8), np.tile([5, 9], 20))
    assert (found["major_error"], found["minor_error"]) == (0, 0)
    assert found["head_error"] == found["tail_error"] == pytest.approx(12 / 13)
    assert [c for c in range(40) if found["confusion"][c][0] == 0] == [1, 38]


def test_a_class_without_samples_is_left_out_of_the_means():
    labels = np.array([0, 0, 1, 1])
    found = evaluate(one_hot([0, 1, 1, 2], 4), labels, np.array([4, 3, 2, 1]))
    assert found["recall"] == [0.5, 0.5, None, None]
    assert found["precision"] == [1.0, 0.5, 0.0, None]
    assert found["f1"] == [pytest.approx(2 / 3), 0.5, None, None]
    assert found["average_precision"][2:] == [None, None]
    assert found["balanced_error"] == 0.5
    assert found["macro_f1"] == pytest.approx(7 / 12)
    assert found["geometric_mean"] == pytest.approx(0.5)
    assert found["minor_error"] is None
    assert found["tail_error"] is None
    assert found["middle_error"] == 0.5
    assert found["confusion"] == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_a_class_that_is_never_predicted_has_no_precision_to_speak_of():
    found = evaluate(one_hot([0, 0, 0], 2), np.array([0, 0, 1]), np.array([2, 1]))
    assert found["precision"] == [pytest.approx(2 / 3), 0.0]
    assert found["f1"] == [pytest.approx(0.8), 0.0]
    assert found["geometric_mean"] == 0


def test_a_perfect_classifier():
    labels = np.array([0, 1, 2, 1])
    found = evaluate(one_hot(labels, 3), labels, np.array([3, 2, 1]))
    zero = [name for name in found if name.endswith("error")]
    assert len(zero) == 8
    assert all(found[name] == 0 for name in zero)
    for name in ("recall", "precision", "f1", "average_precision"):
        assert found[name] == [1, 1, 1]
    assert found["macro_f1"] == found["geometric_mean"] == 1


def test_the_lowest_class_wins_a_tie():
    probabilities = np.array([[0.5, 0.5], [0.5, 0.5]])
    assert evaluate(probabilities, np.array([0, 1]), np.array([1, 1]))["recall"] == [1, 0]


@given(n=st.integers(1, 30), k=st.integers(2, 5), seed=st.integers(0, 100))
def test_results_are_json_and_agree_with_each_other(n, k, seed):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(k), size=n).astype(np.float32)
    labels = rng.integers(0, k, size=n).astype(np.uint8)
    found = evaluate(probabilities, labels, rng.integers(1, 9, size=k))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    confusion = np.array(found["confusion"])
    assert confusion.sum() == n
    assert found["error"] == pytest.approx(1 - np.trace(confusion) / n)
    numbers = [value for value in found.values() if isinstance(value, float)]
    assert all(0 <= value <= 1 for value in numbers)


def test_confusion_has_true_classes_in_rows():
    assert confusion_matrix(np.array([2, 2, 0]), np.array([1, 1, 0]), 3).tolist() == [[1, 0, 0], [0, 0, 2], [0, 0, 0]]


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        (np.empty((0, 2)), np.empty(0, dtype=np.int64), "no sample to evaluate"),
        (np.array([[np.nan, 0.5]]), np.array([0]), "not finite: the model has diverged"),
        (np.array([[2.0, -1.0]]), np.array([0]), "apply softmax"),
        (np.array([[0.5, 0.45]]), np.array([0]), "apply softmax"),
        (np.array([[0.5, 0.5]]), np.array([2]), "from 0 to 1, but they go from 2 to 2"),
        (np.array([[0.5, 0.5]]), np.array([-1]), r"go from -1 to -1: leave out"),
    ],
)
def test_input_that_cannot_be_evaluated(probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        evaluate(probabilities, labels, np.array([1, 1]))


def test_probabilities_of_sixteen_bits_are_accepted():
    probabilities, labels, counts = example()
    half = evaluate(probabilities.astype(np.float16), labels, counts)
    assert half == evaluate(probabilities.astype(np.float16).astype(np.float64), labels, counts)
    assert half["balanced_error"] == pytest.approx(evaluate(probabilities, labels, counts)["balanced_error"], abs=0.01)


def test_summary_over_seeds():
    mean, deviation = summarise([1.0, 2.0, 4.0])
    assert mean == pytest.approx(7 / 3)
    assert deviation == pytest.approx(math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2))
    assert summarise([1.0, 3.0]) == (2, pytest.approx(math.sqrt(2)))
    assert summarise([3.5]) == (3.5, None)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_diverged_runs_are_never_averaged(values):
    with pytest.raises(ValueError, match="leave out diverged runs"):
        summarise(values)
