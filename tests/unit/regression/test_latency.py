"""Verdicts about time, on traces that drift like a shared machine and pairs that differ like processes do."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from paretune.harness.regression.findings import Status, Verdict
from paretune.harness.regression.latency import (
    CONFIRMING,
    Sensitivity,
    check_tolerance,
    confirmed,
    judge,
    latency_finding,
)
from paretune.harness.regression.sequential import settled
from paretune.harness.usage import UsageError

SENSITIVITY = Sensitivity(tolerance=0.1, spread=0.058)


def machine(seed, *, effect=0.0, num_pairs=4, calls=20, between=0.058):
    """Interleaved samples under a drifting clock with bursts, 16 % interquartile range, and processes that differ."""
    generator = np.random.default_rng(seed)
    pairs = []
    for _ in range(num_pairs):
        drift = np.exp(np.cumsum(generator.normal(0, 0.03, calls)))
        bursts = 1 + generator.exponential(0.1, (2, calls)) * (generator.random((2, calls)) < 0.15)
        noise = np.exp(generator.normal(0, 0.05, (2, calls)))
        offset = (1 + effect) * math.exp(generator.normal(0, between))
        pairs.append((tuple(drift * noise[0] * bursts[0]), tuple(drift * offset * noise[1] * bursts[1])))
    return pairs


def series(seed, confidence, **settings):
    """As the gate takes it: four pairs, then four more while they are ambiguous, up to sixteen."""
    seeds = itertools.count(1000 * seed)

    def draw(num_pairs):
        return {"wall": machine(next(seeds), num_pairs=num_pairs, **settings)}

    return settled(
        draw, clock="wall", num_pairs=4, max_pairs=16, sensitivity=Sensitivity(tolerance=0.1), confidence=confidence
    )["wall"]


def verdicts(seeds, **settings):
    """The processes differ twice as much as the default takes them to."""
    return [
        confirmed(
            series(seed, None, **settings),
            lambda seed=seed: series(10_000 + seed, CONFIRMING, **settings),
            Sensitivity(tolerance=0.1),
        ).verdict
        for seed in seeds
    ]


def test_fifty_runs_of_equal_code_raise_no_alarm():
    assert not {Verdict.SLOW, Verdict.FAST} & set(verdicts(range(50)))


def test_ten_percent_is_named_and_never_passed():
    found = verdicts(range(30), effect=0.10)
    assert Verdict.FAST not in found and found.count(Verdict.SAME) <= 1
    assert found.count(Verdict.SLOW) >= 27


def test_thirty_percent_is_always_named():
    assert set(verdicts(range(10), effect=0.30)) == {Verdict.SLOW}


def test_five_percent_is_named_with_fourteen_pairs():
    found = [
        judge(machine(s, effect=0.05, num_pairs=14), Sensitivity(tolerance=0.05, spread=0.058)).verdict
        for s in range(40)
    ]
    assert found.count(Verdict.SLOW) >= 18 and Verdict.FAST not in found


def test_same_needs_evidence():
    assert judge(machine(1, num_pairs=2), Sensitivity(tolerance=0.05)).verdict is Verdict.AMBIGUOUS
    quiet = [((1.0, 1.0, 1.0), (1.0, 1.001, 1.0))] * 14
    assert judge(quiet, Sensitivity(tolerance=0.05)).verdict is Verdict.SAME


def test_a_slowdown_that_does_not_come_back_is_ambiguous():
    slow, equal = machine(1, effect=0.4), machine(2)
    assert judge(slow, SENSITIVITY).verdict is Verdict.SLOW
    assert confirmed(slow, lambda: equal, SENSITIVITY).verdict is Verdict.AMBIGUOUS


def test_nothing_is_measured_again_without_need():
    def never():
        raise AssertionError("measured again")

    assert confirmed([((1.0,) * 5, (1.0,) * 5)] * 14, never, SENSITIVITY).verdict is Verdict.SAME


def test_tighter_than_the_pairs_can_show_is_refused_with_the_number_needed():
    assert check_tolerance(4, Sensitivity(tolerance=0.10, spread=0.058)) <= 0.10
    assert check_tolerance(14, Sensitivity(tolerance=0.05, spread=0.058)) <= 0.0505
    with pytest.raises(UsageError, match=r"4 pairs.*can only show 9\.6%.*--max-pairs 14"):
        check_tolerance(4, Sensitivity(tolerance=0.05, spread=0.058))
    with pytest.raises(UsageError, match="only show"):
        check_tolerance(4, Sensitivity(tolerance=0.0))
    assert check_tolerance(4, Sensitivity(tolerance=0.02, spread=0.005)) < 0.01


@pytest.mark.parametrize(
    ("pairs", "status"),
    [
        (machine(3, effect=0.4), Status.REGRESSION),
        (machine(3, effect=-0.3), Status.IMPROVEMENT),
        (machine(1, num_pairs=2), Status.INCONCLUSIVE),
        ([((1.0, 1.0), (1.0, 1.001))] * 14, Status.PASS),
    ],
)
def test_findings_say_the_interval_and_the_pairs(pairs, status):
    finding = latency_finding("plan", judge(pairs, SENSITIVITY), tolerance=0.1)
    assert finding.status is status
    assert f"98.0%, {len(pairs)} pairs" in finding.text and "Mann-Whitney" in finding.text


def test_an_ambiguous_finding_says_what_its_pairs_could_have_shown():
    noisy = [((1.0, 1.0), (ratio, ratio)) for ratio in (0.9, 1.2, 1.0, 1.1)]
    finding = latency_finding("plan", judge(noisy, SENSITIVITY), tolerance=0.1)
    assert "the pairs differed by 12." in finding.text and "show no less than 21." in finding.text
