"""Which samples are labeled, unlabeled and held out: the imbalanced tasks of the paper's section 5, exactly."""

import operator
import random
import warnings
from dataclasses import dataclass
from math import floor, inf
from numbers import Real

import numpy as np
import numpy.typing as npt

from cissl.randomness import stream

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

UNLABELED_TYPES = ("same", "half", "uniform")


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint indices into the labels, ascending, and how many samples of each class they really hold."""

    labeled: IntArray
    unlabeled: IntArray
    validation: IntArray
    labeled_counts: IntArray
    unlabeled_counts: IntArray

    def __repr__(self) -> str:
        return (
            f"Split(labeled={len(self.labeled)} {self.labeled_counts.tolist()}, "
            f"unlabeled={len(self.unlabeled)} {self.unlabeled_counts.tolist()}, validation={len(self.validation)})"
        )

    @property
    def labeled_imbalance(self) -> float:
        """The realised ρ_l, most frequent over least frequent class."""
        return float(self.labeled_counts.max() / self.labeled_counts.min())

    @property
    def unlabeled_imbalance(self) -> float | None:
        """The realised ρ_u: infinite where a class has no unlabeled sample, None where no class has any."""
        if not self.unlabeled_counts.any():
            return None
        return float(self.unlabeled_counts.max() / self.unlabeled_counts.min()) if self.unlabeled_counts.all() else inf


def class_counts(total: int, imbalance: float, n_classes: int) -> IntArray:
    """How many samples each class gets, most frequent first: N_c = N_max ρ^(−(R_c − 1)/(C − 1)), summing to `total`.

    Rounded by largest remainder, which is within 1 of the formula and never puts a rarer class before a more frequent
    one. A class that the formula would leave without a sample gets one, taken from the largest.
    """
    total = _whole("total", total, minimum=0)
    shares = _shares(imbalance, n_classes)
    if total < n_classes:
        raise ValueError(
            f"{total} samples cannot give each of {n_classes} classes at least one: ask for {n_classes} or more"
        )
    quotas = total * shares / shares.sum()
    counts: IntArray = np.floor(quotas).astype(np.int64)
    by_remainder = np.argsort(counts - quotas, kind="stable")
    counts[by_remainder[: total - counts.sum()]] += 1
    counts = np.maximum(counts, 1)
    while counts.sum() > total:
        counts[np.flatnonzero(counts == counts[0])[-1]] -= 1  # the last of the largest, so that the order stays
    return counts


def default_unlabeled_total(pool: int, labeled: int, imbalance: float, n_classes: int) -> int:
    """The size the paper gives all three types of unlabeled set: what `same` can take from a balanced pool.

    Σ_c ⌊(⌊n/C⌋ − L_max) ρ^(−(R_c − 1)/(C − 1))⌋ with n the pool without the validation samples and
    L_max = ⌊labeled / Σ_c ρ^(−(R_c − 1)/(C − 1))⌋. Labeled counts that sum exactly may put one sample more than L_max
    into the largest class; where that leaves no room for the last unlabeled one, the size is smaller by what it takes.
    """
    shares = _shares(imbalance, n_classes)
    largest = pool // n_classes - _floor(labeled / shares.sum())
    total = sum(_floor(largest * share) for share in shares)
    room = pool // n_classes - int(class_counts(labeled, imbalance, n_classes)[0])
    while total >= n_classes and class_counts(total, imbalance, n_classes)[0] > room:
        total -= 1
    if total < n_classes:
        raise ValueError(
            f"the default size of the unlabeled set leaves too little: {pool} samples of {n_classes} classes, "
            f"{labeled} of them labeled at imbalance {imbalance}, leave {max(total, 0)}; "
            "give unlabeled_total (0 for none), or ask for fewer labeled or validation samples"
        )
    return total


def split(
    labels: npt.ArrayLike,
    *,
    labeled: int,
    imbalance: float,
    unlabeled: str = "same",
    validation_per_class: int = 0,
    unlabeled_total: int | None = None,
    on_shortage: str = "error",
    seed: int = 0,
    n_classes: int | None = None,
) -> Split:
    """Draw one imbalanced task: which class has which rank, and which samples play which part.

    Both depend on `seed` alone. The validation samples depend on nothing else either, so they stay the same over
    every setting that is compared. Where a class has too few samples this is an error, or with
    `on_shortage="cap"` a warning: labeled samples are taken first, and the counts of the result say what there is.
    """
    if on_shortage not in ("error", "cap"):
        raise ValueError(f'on_shortage must be "error" or "cap", not {on_shortage!r}')
    labeled = _whole("labeled", labeled, minimum=0)
    seed = _whole("seed", seed, minimum=0)  # random.Random takes −1 for 1
    validation_per_class = _whole("validation_per_class", validation_per_class, minimum=0)
    imbalance = _ratio(imbalance)
    classes = _check_labels(labels, n_classes)
    available = np.bincount(classes, minlength=n_classes or 0)
    n_classes = len(available)
    _check_validation(available, validation_per_class)
    unlabeled_imbalance = _unlabeled_imbalance(unlabeled, imbalance)

    ranks = list(range(n_classes))
    random.Random(seed).shuffle(ranks)
    labeled_counts = class_counts(labeled, imbalance, n_classes)[ranks]
    if unlabeled_total is None:
        pool = len(classes) - n_classes * validation_per_class
        unlabeled_total = default_unlabeled_total(pool, labeled, imbalance, n_classes)
    if _whole("unlabeled_total", unlabeled_total, minimum=0) == 0:
        unlabeled_counts = np.zeros(n_classes, dtype=np.int64)
    else:
        unlabeled_counts = class_counts(unlabeled_total, unlabeled_imbalance, n_classes)[ranks]

    _check_shortage(available, validation_per_class, labeled_counts, unlabeled_counts, on_shortage)
    left = available - validation_per_class
    labeled_counts = np.minimum(labeled_counts, left)
    unlabeled_counts = np.minimum(unlabeled_counts, left - labeled_counts)

    order = np.random.default_rng(stream(seed, "split")).permutation(len(classes))
    parts: tuple[list[IntArray], ...] = ([], [], [])
    for c in range(n_classes):
        samples = order[classes[order] == c]
        ends = np.cumsum([validation_per_class, labeled_counts[c], unlabeled_counts[c]])
        for part, chosen in zip(parts, np.split(samples, ends)[:-1], strict=True):  # nobody uses the rest
            part.append(chosen)
    held_out, with_label, without_label = (np.sort(np.concatenate(part)) for part in parts)
    return Split(with_label, without_label, held_out, labeled_counts, unlabeled_counts)


def _shares(imbalance: float, n_classes: int) -> FloatArray:
    """ρ^(−(R − 1)/(C − 1)) for each rank R, most frequent first."""
    n_classes = _whole("n_classes", n_classes, minimum=2)
    ranks = np.arange(n_classes, dtype=np.float64)
    return np.asarray(_ratio(imbalance) ** (-ranks / (n_classes - 1)), dtype=np.float64)


def _ratio(imbalance: object) -> float:
    if not (isinstance(imbalance, Real) and 1 <= float(imbalance) < inf):
        raise ValueError(
            f"imbalance is the most frequent class over the least frequent one, at least 1, not {imbalance!r}; "
            "give 1 for balanced classes"
        )
    return float(imbalance)


def _unlabeled_imbalance(unlabeled: str, imbalance: float) -> float:
    if unlabeled not in UNLABELED_TYPES:
        raise ValueError(f"unlabeled must be one of {', '.join(UNLABELED_TYPES)}, not {unlabeled!r}")
    # Below ρ_l = 2, half of it would reverse the order of the classes.
    return {"same": imbalance, "half": max(imbalance / 2, 1.0), "uniform": 1.0}[unlabeled]


def _check_labels(labels: npt.ArrayLike, n_classes: int | None) -> IntArray:
    """The labels as one row of integers 0 … C−1, whatever they came as."""
    try:
        values = np.asarray(labels)
    except ValueError as error:
        raise ValueError(f"labels must be one row of class numbers: {error}") from error
    if values.ndim != 1:
        raise ValueError(f"labels must be one row of class numbers, not an array of shape {values.shape}")
    if values.size == 0:
        raise ValueError("labels are empty: there is nothing to split")
    if values.dtype.kind not in "iuf":
        raise ValueError(f"labels must be class numbers 0, 1, 2, …, not {values.dtype}: number the classes first")
    if values.dtype.kind == "f" and not np.all(values == np.floor(values)):  # NaN is not equal to itself
        wrong = values[values != np.floor(values)][0]
        raise ValueError(f"labels must be class numbers 0, 1, 2, …, but one is {wrong}: remove or number such samples")
    if n_classes is not None:
        n_classes = _whole("n_classes", n_classes, minimum=2)
    low, high = values.min(), values.max()
    limit = n_classes or len(values)  # more classes than samples: these are no class numbers
    if low < 0 or high >= limit:
        raise ValueError(
            f"labels must be class numbers from 0 to {limit - 1} at most, but they go from {low} to {high}: "
            "number the classes 0, 1, 2, … and leave out samples without a label (−1)"
        )
    if n_classes is None and high == 0:
        raise ValueError("all labels are 0: at least two classes are needed")
    return values.astype(np.int64)


def _check_validation(available: IntArray, validation: int) -> None:
    """Validation samples come first, as they depend on nothing else; each class must have one more, to be labeled."""
    lacking = [
        f"class {c} has {have} samples and needs {validation + 1} ({validation} validation + 1 labeled at least)"
        for c, have in enumerate(available)
        if have <= validation
    ]
    if lacking:
        raise ValueError(f"{'; '.join(lacking)}: lower validation_per_class, or leave out classes without samples")


def _check_shortage(
    available: IntArray, validation: int, labeled_counts: IntArray, unlabeled_counts: IntArray, on_shortage: str
) -> None:
    needed = validation + labeled_counts + unlabeled_counts
    short = np.flatnonzero(available < needed)
    if not len(short):
        return
    lacking = "; ".join(
        f"class {c} has {available[c]} samples and needs {needed[c]} "
        f"({validation} validation + {labeled_counts[c]} labeled + {unlabeled_counts[c]} unlabeled)"
        for c in short
    )
    if on_shortage == "error":
        raise ValueError(f'{lacking}: ask for fewer, or take what there is with on_shortage="cap"')
    warnings.warn(f"{lacking}: taking what there is, labeled first", UserWarning, stacklevel=3)


def _whole(name: str, value: object, minimum: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{name} must be a whole number, not {value!r}") from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, not {number}")
    return number


def _floor(value: float) -> int:
    return floor(value + 1e-9)  # 30 · 100^(−1/2) is 3, whatever the last bit of the power says
