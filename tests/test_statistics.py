"""Paired statistics against scipy and against loops."""

import math

import numpy as np
import pytest
from scipy import stats

from cissl.report.statistics import WILCOXON_FROM, Paired, paired


def seeds(n, shift=1.0, seed=0):
    random = np.random.default_rng(seed)
    baseline = random.normal(20, 5, n)
    return (baseline + random.normal(shift, 2, n)).tolist(), baseline.tolist()


@pytest.mark.parametrize("n", [2, 3, 5, 6, 20])
@pytest.mark.parametrize("shift", [-3.0, 0.2])
def test_it_is_scipys(n, shift):
    ours, baseline = seeds(n, shift)
    found = paired(ours, baseline)
    test = stats.ttest_rel(ours, baseline)
    low, high = test.confidence_interval(0.95)
    assert found.p_t == pytest.approx(test.pvalue, rel=1e-6)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6)
    if n < WILCOXON_FROM:
        assert found.p_wilcoxon is None
    else:
        assert found.p_wilcoxon == pytest.approx(stats.wilcoxon(ours, baseline).pvalue)


def test_it_is_a_loop():
    ours, baseline = [10.0, 12.0, 9.0, 30.0], [11.0, 12.0, 13.0, 29.0]
    found = paired(ours, baseline)
    differences = [a - b for a, b in zip(ours, baseline, strict=True)]
    mean = sum(differences) / 4
    std = math.sqrt(sum((d - mean) ** 2 for d in differences) / 3)
    assert found.difference == pytest.approx(mean)
    assert found.high - found.difference == pytest.approx(3.182446305 * std / 2)  # t of 3 degrees of freedom
    assert (found.seeds, found.better, found.equal) == (4, 2, 1)


def test_better_is_above_where_higher_is_better():
    ours, baseline = [70.0, 72.0, 71.0], [69.0, 73.0, 70.0]
    assert paired(ours, baseline).better == 1
    assert paired(ours, baseline, higher_is_better=True).better == 2


def test_two_methods_change_places():
    ours, baseline = seeds(8)
    one, other = paired(ours, baseline), paired(baseline, ours)
    assert (one.difference, one.low, one.high) == pytest.approx((-other.difference, -other.high, -other.low))
    assert (one.p_t, one.p_wilcoxon) == pytest.approx((other.p_t, other.p_wilcoxon))
    assert one.better == 8 - other.better


def test_with_nothing_to_compare_there_is_nothing_to_say():
    assert paired([], []) == Paired(0)
    assert paired([5.0], [6.0]) == Paired(1, -1.0, better=1)


@pytest.mark.parametrize(("shift", "better", "equal"), [(0.0, 0, 7), (-0.1, 7, 0)])
def test_the_same_difference_everywhere_is_a_point_without_a_test(shift, better, equal):
    baseline = [100 * e for e in (0.1, 0.2, 0.7, 0.15, 0.3, 0.05, 0.33)]
    found = paired([b + shift for b in baseline], baseline)
    assert found.difference == found.low == found.high == pytest.approx(shift)
    assert found.p_t is None
    assert (found.better, found.equal) == (better, equal)
    assert (found.p_wilcoxon is None) == (shift == 0)


def test_ties_and_zeros_are_no_warning():
    found = paired([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0], [0.0, 1.0, 2.0, 3.0, 4.0, 7.0, 7.0, 7.0])
    assert 0 < found.p_wilcoxon < 1


def test_what_is_not_in_pairs_is_refused():
    with pytest.raises(ValueError, match="in pairs, got 2 and 1"):
        paired([1.0, 2.0], [1.0])
