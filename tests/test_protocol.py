"""The protocol: class counts, the paper's sizes, and splits that depend on their seed and nothing else."""

import random
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cissl import protocol
from cissl.protocol import class_counts, default_unlabeled_total, split

CIFAR10 = np.repeat(np.arange(10), 5000)
SVHN_COUNTS = [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
SVHN = np.repeat(np.arange(10), SVHN_COUNTS)
BALANCED = np.tile(np.arange(4), 300)

imbalances = st.floats(1, 1000)


def formula(total, imbalance, n_classes):
    """The counts before rounding, class by class and in another form than the code's."""
    largest = total / sum(imbalance ** -(rank / (n_classes - 1)) for rank in range(n_classes))
    return [largest / imbalance ** (rank / (n_classes - 1)) for rank in range(n_classes)]


def apportion(total, quotas):
    """Largest remainder, one seat at a time, in exact arithmetic on the rounded quotas."""
    exact = [Fraction(quota) for quota in quotas]
    seats = [int(quota) for quota in exact]
    for _ in range(total - sum(seats)):
        best = max(range(len(seats)), key=lambda c: (exact[c] - seats[c], -c))
        seats[best] += 1
    return seats


# --- class counts ---


@pytest.mark.parametrize(
    ("total", "n_classes", "expected"),
    [
        (12, 2, [10, 2]),
        (11, 4, [5, 3, 2, 1]),
        (3000, 2, [2500, 500]),
        (2658, 4, [1250, 731, 427, 250]),
    ],
)
def test_counts_of_the_toy_study(total, n_classes, expected):
    assert class_counts(total, 5, n_classes).tolist() == expected


def test_counts_of_the_image_study_sum_to_what_was_asked_for():
    # The published 3,999 with the missing sample where the remainder is largest.
    assert class_counts(4000, 100, 10).tolist() == [1612, 966, 579, 347, 208, 125, 75, 45, 27, 16]


@given(total=st.integers(2, 60_000), imbalance=imbalances, n_classes=st.integers(2, 20))
def test_counts_follow_the_formula(total, imbalance, n_classes):
    total = max(total, n_classes)
    counts = class_counts(total, imbalance, n_classes)
    wanted = formula(total, imbalance, n_classes)
    assert counts.sum() == total
    assert counts.min() >= 1
    assert all(first >= second for first, second in pairwise(counts))
    if min(wanted) >= 1:
        assert np.abs(counts - wanted).max() < 1


@given(total=st.integers(500, 60_000), imbalance=st.integers(1, 20), n_classes=st.integers(2, 10))
def test_counts_are_the_largest_remainders(total, imbalance, n_classes):
    quotas = formula(total, imbalance, n_classes)
    assume(len({round(quota % 1, 9) for quota in quotas}) == n_classes)  # ties in the last bit may fall either way
    assert class_counts(total, imbalance, n_classes).tolist() == apportion(total, quotas)


def test_balanced_counts_give_the_remainder_to_the_first():
    assert class_counts(11, 1, 4).tolist() == [3, 3, 3, 2]
    assert class_counts(12, 1, 4).tolist() == [3, 3, 3, 3]
    assert class_counts(137, 1, 100).tolist() == [2] * 37 + [1] * 63


def test_a_class_below_one_sample_gets_one_from_the_largest():
    # The formula: 36.1, 3.6, 0.36; rounded 36, 4, 0; one for the last comes from the first.
    assert class_counts(40, 100, 3).tolist() == [35, 4, 1]
    assert class_counts(5, 1e300, 5).tolist() == [1, 1, 1, 1, 1]
    assert class_counts(8, 1e6, 5).tolist() == [4, 1, 1, 1, 1]
    assert class_counts(12, 1000, 10).tolist() == [2, 2, 1, 1, 1, 1, 1, 1, 1, 1]  # largest again after each


@pytest.mark.parametrize("imbalance", [0.99, 0, -1, float("nan"), float("inf")])
def test_counts_refuse_an_imbalance_below_one(imbalance):
    with pytest.raises(ValueError, match=r"at least 1, not .*give 1 for balanced"):
        class_counts(100, imbalance, 10)


def test_counts_refuse_what_cannot_be():
    with pytest.raises(ValueError, match="9 samples cannot give each of 10 classes at least one"):
        class_counts(9, 10, 10)
    with pytest.raises(ValueError, match="n_classes must be at least 2, not 1"):
        class_counts(9, 10, 1)
    with pytest.raises(ValueError, match="total must be at least 0, not -9"):
        class_counts(-9, 10, 10)


@pytest.mark.parametrize("value", [4.5, "4", None, np.float64(4)])
def test_whole_numbers_are_whole(value):
    with pytest.raises(ValueError, match="labeled must be a whole number, not"):
        protocol._whole("labeled", value, minimum=0)
    assert protocol._whole("labeled", np.int32(4), minimum=4) == 4


# --- the default size of the unlabeled set ---


@pytest.mark.parametrize(
    ("labels", "validation", "labeled", "imbalance", "expected"),
    [
        (CIFAR10, 500, 4000, 10, 14389),
        (CIFAR10, 500, 4000, 20, 11322),
        (CIFAR10, 500, 4000, 50, 8596),
        (CIFAR10, 500, 4000, 100, 7166),
        (CIFAR10, 500, 1000, 100, 10166),
        (CIFAR10, 500, 2000, 100, 9166),
        (SVHN, 732, 1000, 10, 25943),
        (SVHN, 732, 1000, 20, 21449),
        (SVHN, 732, 1000, 50, 17455),
        (SVHN, 732, 1000, 100, 15360),
        (SVHN, 732, 250, 100, 16109),
        (SVHN, 732, 500, 100, 15858),
    ],
)
def test_the_twelve_sizes_of_the_paper(labels, validation, labeled, imbalance, expected):
    pool = len(labels) - 10 * validation
    assert default_unlabeled_total(pool, labeled, imbalance, 10) == expected


def test_the_default_size_is_that_of_the_pool_after_validation():
    result = split(CIFAR10, labeled=4000, imbalance=100, validation_per_class=500)
    assert len(result.labeled) == 4000
    assert len(result.validation) == 5000
    assert len(result.unlabeled) == 7166


@pytest.mark.parametrize("unlabeled", ["same", "half", "uniform"])
def test_all_three_unlabeled_types_have_the_same_size(unlabeled):
    result = split(CIFAR10, labeled=4000, imbalance=100, unlabeled=unlabeled, validation_per_class=500)
    assert len(result.unlabeled) == 7166


def test_a_default_size_ending_on_a_whole_number_is_not_rounded_down():
    # L_max = 63 / 1.96875 = 32 leaves 132 − 32 = 100, and 100 · 32^(−2/5) is 25, but 24.999… in float64.
    assert default_unlabeled_total(6 * 132, 63, 32, 6) == 100 + 50 + 25 + 12 + 6 + 3


@given(
    per_class=st.integers(80, 400),
    labeled=st.integers(8, 40),
    imbalance=imbalances,
    n_classes=st.integers(2, 8),
    unlabeled=st.sampled_from(["same", "half", "uniform"]),
)
def test_the_default_size_fits_a_balanced_pool(per_class, labeled, imbalance, n_classes, unlabeled):
    labels = np.repeat(np.arange(n_classes), per_class)
    result = split(labels, labeled=labeled, imbalance=imbalance, unlabeled=unlabeled)
    shares = [imbalance ** -(rank / (n_classes - 1)) for rank in range(n_classes)]
    largest = per_class - int(labeled / sum(shares))
    at_most = sum(int(largest * share + 1e-9) for share in shares)  # 74 / 3.7 is 20, but 19.999… in float64
    # Less than one sample of the largest class fewer, in proportion, where its labeled ones were rounded up.
    assert at_most - sum(shares) - 1 <= len(result.unlabeled) <= at_most + 1e-9


def test_the_default_size_makes_room_for_the_labeled_sample_that_rounding_adds():
    # L_max = ⌊40 / 1.78⌋ = 22 and 274 + 127 + 59 + 27 = 487, but the largest class gets 23 of the 40, and 274 more
    # would be one too many.
    result = split(BALANCED, labeled=40, imbalance=10, validation_per_class=4)
    assert sorted(result.labeled_counts) == [2, 5, 10, 23]
    assert sorted(result.unlabeled_counts) == [27, 59, 127, 273]


def test_a_default_size_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match=r"1200 samples of 4 classes, 1200 of them labeled.*give unlabeled_total"):
        split(BALANCED, labeled=1200, imbalance=1)
    with pytest.raises(ValueError, match="leave 0; give unlabeled_total"):
        default_unlabeled_total(100, 100, 10, 2)
    assert len(split(BALANCED, labeled=1200, imbalance=1, unlabeled_total=0).labeled) == 1200


# --- which class is how frequent ---


@pytest.mark.parametrize("seed", range(5))
def test_ranks_are_the_shuffled_counts_of_the_seed(seed):
    result = split(CIFAR10, labeled=4000, imbalance=10, unlabeled_total=10_000, seed=seed)
    labeled, unlabeled = class_counts(4000, 10, 10).tolist(), class_counts(10_000, 10, 10).tolist()
    random.Random(seed).shuffle(labeled)
    random.Random(seed).shuffle(unlabeled)
    assert result.labeled_counts.tolist() == labeled
    assert result.unlabeled_counts.tolist() == unlabeled


@pytest.mark.parametrize(
    ("unlabeled", "imbalance", "expected"),
    [("same", 10, 10), ("half", 10, 5), ("uniform", 10, 1), ("half", 2, 1), ("half", 1.5, 1), ("half", 1, 1)],
)
def test_imbalance_of_the_unlabeled_samples(unlabeled, imbalance, expected):
    result = split(CIFAR10, labeled=1100, imbalance=imbalance, unlabeled=unlabeled, unlabeled_total=11_000)
    assert result.unlabeled_imbalance == pytest.approx(expected, rel=0.01)
    assert result.labeled_imbalance == pytest.approx(imbalance, rel=0.02)


# --- which samples ---


@given(
    sizes=st.lists(st.integers(80, 200), min_size=2, max_size=6),
    labeled=st.integers(6, 40),
    unlabeled_total=st.sampled_from([0, 6, 30]),
    imbalance=st.floats(1, 50),
    unlabeled=st.sampled_from(["same", "half", "uniform"]),
    validation=st.integers(0, 3),
    seed=st.integers(0, 1000),
)
def test_every_part_holds_what_its_counts_say(sizes, labeled, unlabeled_total, imbalance, unlabeled, validation, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    result = split(
        labels,
        labeled=labeled,
        imbalance=imbalance,
        unlabeled=unlabeled,
        validation_per_class=validation,
        unlabeled_total=unlabeled_total,
        on_shortage="error",
        seed=seed,
    )
    taken = [*result.labeled, *result.unlabeled, *result.validation]
    assert len(taken) == len(set(taken)) == labeled + unlabeled_total + validation * len(sizes)
    for c in range(len(sizes)):
        assert sum(labels[i] == c for i in result.labeled) == result.labeled_counts[c] >= 1
        assert sum(labels[i] == c for i in result.unlabeled) == result.unlabeled_counts[c]
        assert sum(labels[i] == c for i in result.validation) == validation
    for part in (result.labeled, result.unlabeled, result.validation):
        assert part.dtype == np.int64
        assert part.tolist() == sorted(part)


def parts(result):
    return [result.labeled.tolist(), result.unlabeled.tolist(), result.validation.tolist()]


def test_the_seed_decides_whatever_the_global_random_state():
    settings = {"labeled": 40, "imbalance": 10, "validation_per_class": 5}
    np.random.seed(1)
    random.seed(1)
    first = split(BALANCED, seed=7, **settings)
    np.random.seed(2)
    random.seed(2)
    before = (random.getstate(), np.random.get_state()[1].tolist())
    assert parts(split(BALANCED, seed=7, **settings)) == parts(first)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert all(a != b for a, b in zip(parts(split(BALANCED, seed=8, **settings)), parts(first), strict=True))


def test_a_split_stays_what_it_was():
    # These very samples: results on disk belong to them, so a change here is a change of the protocol.
    result = split(BALANCED[:80], labeled=8, imbalance=3, unlabeled_total=8, validation_per_class=1, seed=3)
    assert parts(result) == [
        [13, 14, 15, 30, 36, 47, 49, 53],
        [1, 20, 38, 59, 61, 62, 65, 75],
        [22, 25, 52, 55],
    ]


def test_validation_samples_depend_on_the_seed_only():
    held_out = split(BALANCED, labeled=40, imbalance=10, validation_per_class=9).validation
    for settings in (
        {"labeled": 100, "imbalance": 1},
        {"labeled": 40, "imbalance": 50, "unlabeled": "uniform"},
        {"labeled": 40, "imbalance": 2, "unlabeled_total": 0},
    ):
        assert split(BALANCED, validation_per_class=9, **settings).validation.tolist() == held_out.tolist()
    fewer = split(BALANCED, labeled=40, imbalance=10, validation_per_class=4).validation
    assert set(fewer) < set(held_out)


def test_samples_are_drawn_from_all_over_the_class():
    labeled = split(CIFAR10, labeled=1000, imbalance=1).labeled % 5000
    assert labeled.mean() == pytest.approx(2500, abs=250)  # 45 is one standard deviation
    assert labeled.min() < 200 < 4800 < labeled.max()


def test_a_split_is_shown_by_its_counts():
    shown = repr(split(BALANCED, labeled=40, imbalance=10, unlabeled_total=8, validation_per_class=2, seed=1))
    assert shown == "Split(labeled=40 [2, 23, 5, 10], unlabeled=8 [1, 4, 1, 2], validation=8)"


# --- shortage ---

UNEQUAL = np.repeat([0, 1, 2], [1000, 20, 1000])


def test_a_shortage_names_the_class_what_it_has_and_needs():
    with pytest.raises(ValueError, match=r"class 1 has 20 samples and needs 21 \(1 validation \+ 10 labeled \+ 10 un"):
        split(UNEQUAL, labeled=30, imbalance=1, unlabeled_total=30, validation_per_class=1)
    split(UNEQUAL, labeled=30, imbalance=1, unlabeled_total=30)  # exactly enough is enough


@pytest.mark.parametrize(
    ("labeled", "unlabeled_total", "expected_labeled", "expected_unlabeled"),
    [
        (30, 60, [10, 10, 10], [20, 8, 20]),
        (54, 60, [18, 18, 18], [20, 0, 20]),
        (60, 60, [20, 18, 20], [20, 0, 20]),
        (60, 0, [20, 18, 20], [0, 0, 0]),
    ],
)
def test_a_cap_takes_labeled_samples_first_and_warns(labeled, unlabeled_total, expected_labeled, expected_unlabeled):
    need = 2 + (labeled + unlabeled_total) // 3
    with pytest.warns(UserWarning, match=rf"^class 1 has 20 samples and needs {need} .*labeled first$"):
        result = split(
            UNEQUAL,
            labeled=labeled,
            imbalance=1,
            unlabeled_total=unlabeled_total,
            validation_per_class=2,
            on_shortage="cap",
        )
    assert result.labeled_counts.tolist() == expected_labeled
    assert result.unlabeled_counts.tolist() == expected_unlabeled
    assert np.bincount(UNEQUAL[result.labeled], minlength=3).tolist() == expected_labeled
    assert np.bincount(UNEQUAL[result.unlabeled], minlength=3).tolist() == expected_unlabeled
    assert np.bincount(UNEQUAL[result.validation]).tolist() == [2, 2, 2]
    assert not set(result.labeled) & set(result.unlabeled)
    assert result.labeled_imbalance == max(expected_labeled) / min(expected_labeled)


def test_the_warning_of_a_cap_points_at_who_asked_for_it():
    """In a process of its own: here the checks of types put calls of their own between."""
    lines = [
        "from cissl.protocol import split",
        "labels = [0, 1] * 20",
        "split(labels, labeled=20, imbalance=1, unlabeled_total=40, on_shortage='cap')",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("<string>:3: UserWarning: class 0 has 20 samples and needs 30 ")


def test_realised_unlabeled_imbalance():
    with pytest.warns(UserWarning, match="class 1 has 20"):
        capped = split(UNEQUAL, labeled=30, imbalance=1, unlabeled_total=60, on_shortage="cap")
    assert capped.unlabeled_imbalance == 2
    with pytest.warns(UserWarning, match="class 1 has 20"):
        capped = split(UNEQUAL, labeled=60, imbalance=1, unlabeled_total=60, on_shortage="cap")
    assert capped.unlabeled_imbalance == float("inf")
    assert split(UNEQUAL, labeled=30, imbalance=1, unlabeled_total=0).unlabeled_imbalance is None


def test_a_cap_without_a_shortage_is_silent():
    settings = {"labeled": 30, "imbalance": 2, "unlabeled_total": 30}
    assert parts(split(BALANCED, on_shortage="cap", **settings)) == parts(split(BALANCED, **settings))


def test_svhn_is_short_of_samples_and_says_so():
    with pytest.warns(UserWarning, match="samples and needs"):
        result = split(SVHN, labeled=1000, imbalance=10, validation_per_class=732, on_shortage="cap")
    assert result.labeled_counts.sum() == 1000
    assert result.unlabeled_counts.sum() < 25943


@pytest.mark.parametrize("on_shortage", ["error", "cap"])
def test_every_class_keeps_a_sample_to_label(on_shortage):
    with pytest.raises(ValueError, match=r"class 1 has 20 samples and needs 21 .*lower validation_per_class"):
        split(UNEQUAL, labeled=30, imbalance=1, validation_per_class=20, on_shortage=on_shortage)
    with pytest.raises(ValueError, match=r"class 2 has 0 samples and needs 1 .*leave out classes without samples"):
        split([0, 1, 3, 3, 0, 1], labeled=4, imbalance=1, unlabeled_total=0, on_shortage=on_shortage)
    with pytest.raises(ValueError, match="class 3 has 0 samples"):
        split(UNEQUAL, labeled=30, imbalance=1, n_classes=4, on_shortage=on_shortage)


# --- input ---


@pytest.mark.parametrize("labels", [[0, 1] * 20, [0.0, 1.0] * 20, np.array([0, 1] * 20, dtype=np.uint8)])
def test_labels_may_be_any_row_of_whole_numbers(labels):
    result = split(labels, labeled=6, imbalance=2, unlabeled_total=6)
    assert parts(result) == parts(split(np.array([0, 1] * 20), labeled=6, imbalance=2, unlabeled_total=6))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "labels are empty"),
        ([[0, 1], [1, 0]], r"not an array of shape \(2, 2\)"),
        ([[0, 1], [1]], "one row of class numbers"),
        ([0, 1, -1, 1], r"go from -1 to 1: .*leave out samples without a label \(−1\)"),
        ([0, 1, 10, 1], "from 0 to 3 at most, but they go from 0 to 10"),
        ([0, 1, 4, 1], "from 0 to 3 at most, but they go from 0 to 4"),
        ([0, 1, float("inf"), 1], "go from 0.0 to inf"),
        ([0, 1, float("nan"), 1], "one is nan: remove or number such samples"),
        ([0, 1, 1.5, 1], "one is 1.5"),
        (["cat", "dog"], "number the classes first"),
        ([True, False], "not bool: number the classes first"),
        ([0, 0, 0], "at least two classes"),
    ],
)
def test_labels_that_are_no_class_numbers(labels, message):
    with pytest.raises(ValueError, match=message):
        split(labels, labeled=2, imbalance=1, unlabeled_total=0)


def test_labels_beyond_the_number_of_classes():
    with pytest.raises(ValueError, match="from 0 to 2 at most, but they go from 0 to 3"):
        split(BALANCED, labeled=12, imbalance=1, n_classes=3)
    given_number, counted = (split(BALANCED, labeled=12, imbalance=1, n_classes=n) for n in (4, None))
    assert parts(given_number) == parts(counted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unlabeled": "other"}, "must be one of same, half, uniform, not 'other'"),
        ({"on_shortage": "ignore"}, 'must be "error" or "cap", not \'ignore\''),
        ({"imbalance": 0.5}, "at least 1, not 0.5"),
        ({"imbalance": "10"}, "at least 1, not '10'"),
        ({"imbalance": None, "unlabeled": "half"}, "at least 1, not None"),
        ({"labeled": 40.0}, "labeled must be a whole number, not 40.0"),
        ({"labeled": "40"}, "labeled must be a whole number, not '40'"),
        ({"labeled": 3}, "3 samples cannot give each of 4 classes at least one"),
        ({"labeled": 0}, "0 samples cannot give"),
        ({"unlabeled_total": 3}, "3 samples cannot give each of 4 classes"),
        ({"unlabeled_total": -1}, "unlabeled_total must be at least 0, not -1"),
        ({"validation_per_class": -1}, "validation_per_class must be at least 0"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
    ],
)
def test_settings_that_cannot_be(change, message, unchecked):
    with pytest.raises(ValueError, match=message):
        split(BALANCED, **({"labeled": 40, "imbalance": 10} | change))


# --- at the edges ---


def test_a_default_size_of_one_sample_per_class_is_enough():
    assert default_unlabeled_total(6, 3, 1, 3) == 3  # two of each class, one of them labeled
    with pytest.raises(ValueError, match="the default size of the unlabeled set leaves too little"):
        default_unlabeled_total(6, 4, 1, 3)  # rounding labels both samples of the first class


def test_the_seed_is_0_unless_it_is_given():
    settings = {"labeled": 40, "imbalance": 10, "unlabeled_total": 100}
    assert parts(split(BALANCED, **settings)) == parts(split(BALANCED, **settings, seed=0))


@pytest.mark.parametrize(
    ("labels", "change", "message"),
    [
        ([], {}, "^labels are empty: there is nothing to split$"),
        ([0, 0, 0], {}, "^all labels are 0: at least two classes are needed$"),
        ([0, 1] * 9, {"imbalance": 0.5}, "give 1 for balanced classes$"),
        ([0, 1, -1], {}, r"from -1 to 1: number the classes 0, 1, 2, … and leave out samples without a label \(−1\)$"),
        ([0, 1] * 9, {"validation_per_class": 9}, r"labeled at least\); class 1 has 9 samples and needs 10"),
        ([0, 1] * 9, {"labeled": 20}, r"0 unlabeled\); class 1 has 9 samples and needs 10"),
    ],
)
def test_errors_word_for_word_where_it_helps(labels, change, message):
    with pytest.raises(ValueError, match=message):
        split(labels, **({"labeled": 2, "imbalance": 1, "unlabeled_total": 0} | change))
