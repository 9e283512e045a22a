"""Pairs of live processes: real slowdowns are found, equal code is silent, and every way to die is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paretune.harness.regression.findings import Verdict
from paretune.harness.regression.interleave import PairError, Side, interleave, measure_pair
from paretune.harness.regression.latency import confirmed

PROCESS = Path(__file__).parents[1] / "support" / "pair_process.py"


def side(how: str = "work", thousands: int = 200) -> Side:
    return Side(command=(sys.executable, str(PROCESS), how, str(thousands)))


def judged(head: Side, num_pairs: int = 4):
    """By processor time: what else this machine does must not decide the test."""

    def measure():
        return interleave(side(), head, num_pairs=num_pairs, num_rounds=5, timeout_s=20)["processor"]

    return confirmed(measure(), measure, tolerance=0.1)


def test_a_slower_path_is_found_and_confirmed():
    judgement = judged(side(thousands=600))  # three times the work: no noise of a shared machine hides that
    assert judgement.verdict is Verdict.SLOW
    assert judgement.num_pairs == 8
    assert 1.1 < judgement.interval.low < judgement.interval.high


def test_equal_code_raises_no_alarm():
    assert judged(side()).verdict in (Verdict.SAME, Verdict.AMBIGUOUS)


def test_a_faster_path_needs_the_same_proof():
    judgement = judged(side(thousands=130))
    assert judgement.verdict is Verdict.FAST and judgement.num_pairs == 8


def test_samples_of_each_side_stay_with_their_side_when_swapped():
    clocks = measure_pair(side(), side(thousands=800), num_rounds=3, is_swapped=True)
    base, head = clocks["processor"]
    assert len(base) == len(head) == 6
    assert max(base) < min(head)
    assert clocks.keys() == {"wall", "processor"}


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ("refuse", "died.*cannot load"),
        ("die", "died.*about to die"),
        ("garbage", "answered b'not json"),
        ("zero", "no duration"),
        ("hang", "did not answer within 1 s"),
    ],
)
def test_a_process_that_fails_is_an_error_that_says_how(how, word):
    with pytest.raises(PairError, match=f"(?s){word}"):
        measure_pair(side(), side(how), num_rounds=2, timeout_s=1)


def test_a_missing_interpreter_is_the_systems_error():
    with pytest.raises(FileNotFoundError):
        measure_pair(side(), Side(command=("no-such-interpreter",)), num_rounds=1)
