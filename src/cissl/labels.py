"""Labels as people have them, into class numbers: −1, None, NaN and the empty text are samples without a label."""

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

UNLABELED = -1


def read_labels(y: Any, n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """(a number for each of the n samples, −1 where it has no label; the classes, ascending)."""
    given = as_array(y)
    if len(given) != n:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {n} samples in X and {len(given)} labels in "
            "y: give one label for each sample, −1 where there is none"
        )
    labeled = ~without_label(given)
    present = given[labeled]
    if not len(present):
        raise ValueError("no sample in y has a label: give at least one of each class")
    if present.dtype == object and all(isinstance(value, int | float | np.number) for value in present):
        present = np.array(present.tolist())  # numbers that stood beside a None
    if present.dtype.kind == "f" and np.isinf(present).any():
        raise ValueError("Input y contains infinity: give −1 where a sample has no label")
    kinds = sorted({type(value).__name__ for value in present}) if present.dtype == object else []
    if len(kinds) > 1:
        raise ValueError(f"labels in y are of several kinds ({', '.join(kinds)}): use one")
    check_classification_targets(present)
    classes, numbers = np.unique(present, return_inverse=True)
    if len(classes) < 2:
        only = classes.tolist()[0]
        raise ValueError(
            f"y holds labels of one class only, {only!r}: a classifier needs labeled samples of 2 at least"
        )
    codes = np.full(n, UNLABELED)
    codes[labeled] = numbers
    return codes, classes


def without_label(labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which labels are none: −1 among numbers, None, NaN and the empty text."""
    if labels.dtype == object:
        return np.array([_is_none(label) for label in labels], bool)
    if labels.dtype.kind in "US":
        return np.asarray(labels == labels.dtype.type())
    if labels.dtype.kind in "if":
        return np.asarray((labels == UNLABELED) | np.isnan(labels))
    return np.zeros(len(labels), bool)


def _is_none(label: Any) -> bool:
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(label, str):
        return label == ""
    return isinstance(label, int | float | np.number) and bool(label == UNLABELED or np.isnan(label))


def as_array(y: Any) -> npt.NDArray[Any]:
    """Labels as a vector, whatever holds them."""
    if hasattr(y, "detach"):  # a torch tensor
        y = y.detach().cpu().numpy()
    elif hasattr(y, "to_numpy"):  # a column of pandas or polars
        y = y.to_numpy()
    elif isinstance(y, list | tuple) and any(isinstance(label, str) for label in y):
        y = np.array([*y, None], dtype=object)[:-1]  # numpy would turn None and NaN among them into texts
    array: npt.NDArray[Any] = column_or_1d(y, warn=True)
    return array
