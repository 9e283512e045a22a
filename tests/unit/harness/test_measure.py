"""Timing keeps warm-up apart, waits for the device, and stops for the stated reasons."""

import pytest

from paretune.harness.devices.base import Session
from paretune.harness.measure import half_interval, measure
from paretune.harness.records import Procedure


class Clock(Session):
    """A device whose work ends only when somebody waits: calls cost what the list says."""

    def __init__(self, costs):
        self.costs, self.pending, self.time = list(costs), 0.0, 0.0

    def mark(self, phase): ...

    def phases(self):
        return {}

    def now_s(self):
        self.time += self.pending
        self.pending = 0.0
        return self.time

    def call(self):
        self.pending += self.costs.pop(0)
        return len(self.costs)


def run(costs, **procedure):
    clock = Clock(costs)
    return measure(clock.call, clock, Procedure(**procedure))


def test_asynchronous_work_is_timed_whole_and_warmup_apart():
    timed = run([9.0, 2.0, 2.0, 2.0], num_warmup=1, min_iterations=3)
    assert timed.warmup_s == (9.0,) and timed.latency_s == (2.0, 2.0, 2.0)
    assert (timed.first_output, timed.last_output) == (3, 0)


def test_noise_adds_iterations_up_to_the_limit():
    assert len(run([1.0, 1.0, 2.0] * 9, num_warmup=0, min_iterations=3, max_iterations=7).latency_s) == 7
    assert len(run([1.0, 1.01, 1.0] * 9, num_warmup=0, min_iterations=3, max_iterations=7).latency_s) == 3


def test_without_warmup_the_first_output_is_the_first_timed_one():
    timed = run([1.0], num_warmup=0, min_iterations=1, max_iterations=1)
    assert timed.first_output == timed.last_output == 0


def test_a_deterministic_device_is_asked_once():
    clock = Clock([1.0] * 9)
    assert measure(clock.call, clock, Procedure(num_warmup=2), once=True).latency_s == (1.0,)


@pytest.mark.parametrize("count", [1, 2, 5, 6, 30])
def test_the_interval_of_equal_samples_has_no_width(count):
    assert half_interval([2.0] * count) == 0.0


def test_the_interval_narrows_with_samples_and_ignores_one_outlier_of_many():
    few = half_interval([1.0, 1.1, 0.9])
    many = half_interval([1.0, 1.1, 0.9] * 30 + [50.0])
    assert many <= few
