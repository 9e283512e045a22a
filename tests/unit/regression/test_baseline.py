"""Baselines: what is damaged is refused, what is kept is small, and moving one needs proof."""

from __future__ import annotations

import dataclasses

import pytest
from support.records import GIB, GROUPED, failed, record, study

from paretune.harness.records import Trial
from paretune.harness.regression import baseline
from paretune.harness.regression.compare import compare
from paretune.harness.regression.findings import exit_status
from paretune.harness.regression.rerun import measure_again, trial_of
from paretune.harness.regression.update import moved
from paretune.harness.usage import UsageError


def test_what_is_written_is_read_and_compares_equal(tmp_path):
    path = tmp_path / "deep" / "base.jsonl"
    baseline.write(path, study())
    assert exit_status(compare(baseline.read(path), study())) == 0


def test_written_sorted_so_that_order_of_measuring_makes_no_diff(tmp_path):
    baseline.write(tmp_path / "a.jsonl", study())
    baseline.write(tmp_path / "b.jsonl", study()[::-1])
    assert (tmp_path / "a.jsonl").read_text() == (tmp_path / "b.jsonl").read_text()


def test_long_traces_dates_and_raw_warm_up_are_left_out():
    heavy = record(
        facts={"timeline": list(range(1000)), "snapshot": "x" * 9000, "layers": 4}, warmup_s=(1.0,), created="x"
    )
    kept = baseline.slim(heavy)
    assert kept.facts == {"layers": 4} and kept.warmup_s == () and kept.created == ""


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (None, "no such baseline"),
        ("", "holds no record"),
        ("{}\n", "damaged"),
        (record().to_json()[:-5], "damaged"),
        (f"{record().to_json()}\nnonsense\n", "damaged"),
        (f"{record().to_json()}\n{record().to_json()}\n", "twice"),
    ],
)
def test_what_guards_nothing_is_refused(tmp_path, text, word):
    path = tmp_path / "base.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=word):
        baseline.read(path)


def test_a_folder_is_no_baseline(tmp_path):
    with pytest.raises(UsageError, match="no such baseline"):
        baseline.read(tmp_path)


def test_a_record_is_run_again_as_it_was():
    again = trial_of(record(device_memory_bytes=GIB, options={"isolation": "spawn", "environment": {"A": "1"}}))
    assert (again.plan, again.device, again.device_memory_bytes) == ("resident", "sim:rtx-4070", GIB)
    assert again.options == {"environment": {"A": "1"}}


@pytest.mark.parametrize("num_workers", [1, 2])
def test_every_plan_is_measured_in_order(num_workers):
    asked: list[Trial] = []

    def run(trial):
        asked.append(trial)
        return record(trial.plan)

    plans = [r.plan for r in study()]
    assert [r.plan for r in measure_again(study(), run=run, num_workers=num_workers)] == plans
    assert sorted(t.plan for t in asked) == sorted(plans)


def smaller():
    return dataclasses.replace(record(), peak_allocated_bytes=7 * GIB)


def larger():
    return dataclasses.replace(record(), peak_allocated_bytes=9 * GIB)


def test_an_improvement_seen_twice_moves_the_baseline():
    assert moved([record()], [smaller()], [smaller()], because=None) == [smaller()]


def test_an_improvement_seen_once_moves_nothing():
    with pytest.raises(UsageError, match="two measurements"):
        moved([record()], [smaller()], [record()], because="it got better")


def test_worse_needs_a_reason_which_is_kept():
    with pytest.raises(UsageError, match=r"(?s)become worse.*--because"):
        moved([record()], [larger()], [larger()], because="  ")
    (kept,) = moved([record()], [larger()], [larger()], because="exact masks need it")
    assert kept.facts["accepted_because"] == "exact masks need it"


def test_a_plan_cannot_be_lost_on_the_way():
    with pytest.raises(UsageError, match="1 plans of the baseline were not measured"):
        moved([record(), record(GROUPED)], [record()], [record()], because="x")


def test_a_first_baseline_needs_two_equal_measurements_only():
    assert moved([], study(), study(), because=None) == study()
    with pytest.raises(UsageError, match="two measurements"):
        moved([], [record()], [failed("resident")], because=None)
