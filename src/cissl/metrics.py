"""How good a classifier is, overall and for the rare classes: plain numbers from probabilities and labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

CALIBRATION_BINS = 15  # the usual number, from Guo et al. 2017


def evaluate(
    probabilities: Float[np.ndarray, "n k"],
    labels: Integer[np.ndarray, " n"],
    class_counts: Integer[np.ndarray, " k"],
) -> dict[str, Any]:
    """Every number that is reported of a model, as fractions, ready for JSON.

    `class_counts` are those of the labeled training samples: they say which classes are frequent and which are rare.
    What is not defined, such as the recall of a class without a test sample, is None, and means go over the classes
    that have one.
    """
    _check(probabilities, labels)
    probabilities = probabilities.astype(np.float64)
    n_classes = probabilities.shape[1]
    predicted = probabilities.argmax(1)  # the lowest class on a tie
    confusion = confusion_matrix(predicted, labels, n_classes)
    correct, present, claimed = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    recall = _ratio(correct, present)
    f1 = np.where(present > 0, _ratio(2 * correct, present + claimed), np.nan)
    # Never predicted although there: 0, as in scikit-learn. Neither there nor predicted: not defined.
    precision = np.where(claimed > 0, _ratio(correct, claimed), np.where(present > 0, 0.0, np.nan))
    ranked = np.argsort(-class_counts.astype(np.int64), kind="stable")
    third = (n_classes + 1) // 3
    return {
        "error": float((predicted != labels).mean()),
        "balanced_error": _mean(1 - recall),
        "recall": _numbers(recall),
        "precision": _numbers(precision),
        "f1": _numbers(f1),
        "average_precision": _numbers(
            np.array([average_precision(probabilities[:, c], labels == c) for c in range(n_classes)])
        ),
        "macro_f1": _mean(f1),
        "geometric_mean": float(np.prod(recall[present > 0] ** (1 / (present > 0).sum()))),
        # Equally frequent: the major class is the first of them, the minor class the last.
        "major_error": _mean(1 - recall[ranked[:1]]),
        "minor_error": _mean(1 - recall[ranked[-1:]]),
        # Thirds of the classes by frequency, the middle one with what does not divide: 3, 4, 3 of ten, 1, 0, 1 of two.
        "head_error": _mean(1 - recall[ranked[:third]]),
        "middle_error": _mean(1 - recall[ranked[third:-third]]),
        "tail_error": _mean(1 - recall[ranked[-third:]]),
        "confusion": confusion.tolist(),
        "calibration_error": calibration_error(probabilities.max(1), predicted == labels),
    }


def confusion_matrix(
    predicted: Integer[np.ndarray, " n"], labels: Integer[np.ndarray, " n"], n_classes: int
) -> Int[np.ndarray, "k k"]:
    """How many samples of each class (rows) were taken for which class (columns)."""
    cells = labels.astype(np.int64) * n_classes + predicted.astype(np.int64)
    return np.bincount(cells, minlength=n_classes**2).reshape(n_classes, n_classes)


def average_precision(scores: Float[np.ndarray, " n"], positive: Bool[np.ndarray, " n"]) -> float:
    """The area under one class's precision-recall steps, one step per distinct score; NaN without a positive."""
    if not positive.any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    last_of_score = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    found = np.cumsum(positive[order])[last_of_score]
    precision = found / (last_of_score + 1)
    return float((np.diff(found, prepend=0) * precision).sum() / found[-1])


def calibration_error(
    confidence: Float[np.ndarray, " n"], correct: Bool[np.ndarray, " n"], bins: int = CALIBRATION_BINS
) -> float:
    """Expected calibration error: how far confidence is from accuracy, averaged over bins (lower, upper] of samples."""
    which = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    surplus = np.bincount(which, weights=confidence - correct, minlength=bins)
    return float(np.abs(surplus).sum() / len(confidence))


def reliability(
    confidence: Float[np.ndarray, " n"], correct: Bool[np.ndarray, " n"], bins: int = CALIBRATION_BINS
) -> list[tuple[int, float, float]]:
    """Of each bin of the calibration error: samples, mean confidence, accuracy; zeros for one without a sample."""
    which = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    members = [which == i for i in range(bins)]
    return [
        (int(inside.sum()), float(confidence[inside].mean()), float(correct[inside].mean()))
        if inside.any()
        else (0, 0.0, 0.0)
        for inside in members
    ]


def summarise(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation over seeds, with n − 1 in the denominator: None for a single seed."""
    if not len(values) or not np.isfinite(values).all():
        raise ValueError(f"a mean needs finite numbers, at least one, not {list(values)}: leave out diverged runs")
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def _check(probabilities: Float[np.ndarray, "n k"], labels: Integer[np.ndarray, " n"]) -> None:
    n, n_classes = probabilities.shape
    if n == 0:
        raise ValueError("there is no sample to evaluate: give at least one")
    if not np.isfinite(probabilities).all():
        raise ValueError("some probabilities are not finite: the model has diverged and has no error to report")
    # Loose enough for probabilities that were rounded to 16 bits.
    if probabilities.min() < -1e-6 or np.abs(probabilities.sum(1, dtype=np.float64) - 1).max() > 0.02:
        raise ValueError("each row of probabilities must be non-negative and sum to 1: apply softmax to logits first")
    if labels.min() < 0 or labels.max() >= n_classes:
        raise ValueError(
            f"labels must be class numbers from 0 to {n_classes - 1}, but they go from {labels.min()} to "
            f"{labels.max()}: leave out samples without a label (−1)"
        )


def _ratio(above: np.ndarray, below: np.ndarray) -> Float[np.ndarray, " k"]:
    """Quotients, NaN where the denominator is 0."""
    quotients = np.full(len(below), np.nan)
    np.divide(above, below, out=quotients, where=below > 0)
    return quotients


def _mean(values: Float[np.ndarray, " k"]) -> float | None:
    """The mean of what is defined, None if nothing is."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else None


def _numbers(values: Float[np.ndarray, " k"]) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]
