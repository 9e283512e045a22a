"""Change points in series with known changes; noise alone gives none."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from support.records import GIB, failed, record

from paretune.harness.records import Kind
from paretune.harness.regression.changepoints import change_points
from paretune.harness.regression.history import series
from paretune.harness.report.plots import save
from paretune.harness.report.plots.history import history_plot


def noisy(levels, *, relative, seed=0):
    generator = np.random.default_rng(seed)
    return [level * math.exp(generator.normal(0, relative)) for level in levels]


def test_a_step_is_found_where_it_is():
    (point,) = change_points(noisy([1.0] * 20 + [1.2] * 20, relative=0.02))
    assert point.index == 20
    assert point.change == pytest.approx(0.2, abs=0.03)


def test_two_steps_and_a_way_back_are_found():
    points = change_points(noisy([1.0] * 25 + [1.15] * 25 + [1.0] * 25, relative=0.02, seed=3))
    assert [abs(p.index - place) <= 1 for p, place in zip(points, (25, 50))] == [True, True]


def test_a_shift_is_found_in_a_long_history_of_windows():
    points = change_points(noisy([1.0] * 170 + [1.1] * 60, relative=0.02, seed=5))
    assert [abs(point.index - 170) <= 2 for point in points] == [True]


def test_noise_of_sixty_percent_gives_fewer_than_one_alarm_in_a_hundred_runs():
    alarms = sum(len(change_points(noisy([1.0] * 40, relative=0.5, seed=s))) for s in range(100))
    assert alarms <= 8  # 4000 runs


def test_a_lasting_thirty_percent_is_found_within_three_runs():
    found = [change_points(noisy([1.0] * 30 + [1.3] * 3, relative=0.03, seed=s)) for s in range(20)]
    assert sum(any(abs(p.index - 30) <= 1 for p in points) for points in found) >= 19


def test_one_outlier_is_no_change():
    assert change_points([1.0, 1.01, 0.99, 1.0, 1.02, 5.0, 1.0, 0.98, 1.01, 1.0, 0.99, 1.0]) == []


def test_changes_too_small_to_matter_are_left_out():
    exact = [1.0] * 20 + [1.01] * 20
    assert change_points(exact) == []
    assert [p.index for p in change_points(exact, least_magnitude=0.005)] == [20]


@pytest.mark.parametrize("short", [[], [1.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
def test_short_series_hold_none(short):
    assert change_points(short) == []


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="finite"):
        change_points([1.0, math.nan] * 5)


def runs(values, **changes):
    base = record(**changes)
    days = [f"2026-01-{day:02d}T00:00:00" for day in range(1, len(values) + 1)]
    return [dataclasses.replace(base, latency_s=(value,), created=day) for value, day in zip(values, days)]


def test_series_are_ordered_by_date_and_kept_apart_by_plan_and_machine():
    records = runs([1.0] * 10 + [2.0] * 10)[::-1] + runs([5.0] * 4, plan="a:b")
    records += runs([9.0], kind=Kind.MEASURED, environment={"processor": "other"})
    made = {(one.where.partition(": ")[2], len(one.runs)): one for one in series(records, "latency_s")}
    assert set(made) == {("resident (simulated)", 20), ("a:b (simulated)", 4), ("resident (measured)", 1)}
    (change,) = made[("resident (simulated)", 20)].changes
    assert change.index == 10 and change.change == 1.0


def test_records_without_the_figure_are_counted_not_zero():
    (one,) = series([*runs([1.0]), failed("resident")], "peak_allocated_bytes")
    assert [run.value for run in one.runs] == [8 * GIB] and one.skipped == 1


def test_drawn(tmp_path):
    figure = history_plot(series(runs([1.0] * 10 + [2.0] * 10), "latency_s"))
    assert len(figure.axes[0].lines) == 2
    assert save(figure, tmp_path / "h.png").exists()
