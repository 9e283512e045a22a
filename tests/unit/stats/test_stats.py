"""Statistics hold on samples whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paretune.harness import stats

RANDOM = np.random.default_rng(7)


def drawn_pairs(num_pairs, effect, *, spread=0.058, within=0.05, calls=20, seed=0):
    generator = np.random.default_rng(seed)
    pairs = []
    for _ in range(num_pairs):
        drift = np.exp(np.cumsum(generator.normal(0, 0.01, calls)))
        base = drift * np.exp(generator.normal(0, within, calls))
        between = math.exp(generator.normal(0, spread))
        pairs.append((base, drift * between * (1 + effect) * np.exp(generator.normal(0, within, calls))))
    return pairs


def test_median_and_mad_ignore_one_wild_sample():
    samples = [1.0, 1.1, 0.9, 1.0, 50.0]
    assert stats.median(samples) == 1.0
    assert stats.mad(samples) == pytest.approx(0.14826)


def test_mad_estimates_the_deviation_of_normal_samples():
    assert stats.mad(RANDOM.normal(5, 2, 20_000)) == pytest.approx(2, rel=0.03)


def test_outliers_are_tagged_by_position():
    assert stats.outliers([1.0, 1.1, 0.9, 1.05, 0.95, 9.0]) == (5,)
    assert stats.outliers([1.0, 1.1, 0.9]) == ()


def test_interval_covers_the_truth_as_often_as_it_says():
    hits = 0
    for seed in range(100):
        samples = np.random.default_rng(seed).normal(10, 1, 40)
        interval = stats.bootstrap_interval(samples)
        hits += interval.low <= 10 <= interval.high
    assert hits >= 88


def test_interval_is_repeatable_and_contains_its_centre():
    samples = [1.0, 1.2, 0.9, 1.1, 1.05]
    first = stats.bootstrap_interval(samples)
    assert first == stats.bootstrap_interval(samples)
    assert first.low <= first.centre == 1.05 <= first.high


def test_two_equal_samples_are_not_narrow():
    assert not stats.is_narrow([1.0, 1.0], target_spread=0.5)
    assert stats.is_narrow([1.0, 1.0, 1.0], target_spread=0.01)
    assert not stats.is_narrow([1.0, 2.0, 3.0], target_spread=0.1)


def test_mann_whitney_separates_shifted_from_equal():
    base = RANDOM.normal(1, 0.05, 60)
    assert stats.mann_whitney(base, base * 1.1) < 0.001
    assert stats.mann_whitney([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) > 0.5


def test_pairing_removes_common_drift():
    drift = np.linspace(1, 3, 30)
    assert stats.paired_ratio((drift, drift * 1.1)) == pytest.approx(1.1)


def test_ratio_interval_narrows_with_pairs():
    narrow = stats.ratio_interval(drawn_pairs(40, 0.0, seed=1))
    wide = stats.ratio_interval(drawn_pairs(4, 0.0, seed=1))
    assert narrow.half_width < wide.half_width
    assert narrow.low < 1 < narrow.high


def test_ratio_interval_finds_ten_percent_with_many_pairs():
    found = sum(stats.ratio_interval(drawn_pairs(14, 0.10, seed=s)).low > 1 for s in range(20))
    assert found >= 18


def test_detectable_effect_agrees_with_the_pairs_it_needs():
    assert [stats.pairs_needed(effect, 0.058) for effect in (0.10, 0.05, 0.02)] == [4, 14, 86]
    for num_pairs in (1, 4, 14, 86):
        effect = stats.detectable_effect(num_pairs, 0.058)
        assert stats.pairs_needed(effect + 0.0005, 0.058) <= num_pairs


@pytest.mark.parametrize("bad", [[], [math.nan], [math.inf, 1.0], [[1.0]]])
def test_no_statistic_of_nothing(bad):
    with pytest.raises(ValueError, match="samples"):
        stats.median(bad)


def test_pairs_must_match_and_be_positive():
    with pytest.raises(ValueError, match="as many"):
        stats.paired_ratio(([1.0], [1.0, 2.0]))
    with pytest.raises(ValueError, match="zero or less"):
        stats.paired_ratio(([0.0], [1.0]))
    with pytest.raises(ValueError, match="no pairs"):
        stats.ratio_interval([])
    with pytest.raises(ValueError, match="two pairs"):
        stats.pair_spread([([1.0], [1.0])])
