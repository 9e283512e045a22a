"""The loop: baseline first, no plan twice, failures are results, budgets count finished trials, every sampler works."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from support.toy_space import Machine, made_up, question

from paretune.harness.question import Question
from paretune.harness.records import Outcome, Record, Trial
from paretune.harness.search.open import open_ledger
from paretune.harness.search.samplers import sampler_for
from paretune.harness.spec import SAMPLERS, Search
from paretune.harness.storage import open_storage
from paretune.harness.store import Store
from paretune.harness.study import Run, Study, StudyResult
from paretune.strategies import Plan


def run(asked: Question, machine: Run, folder: Path, storage: str | None = None) -> StudyResult:
    ledger = open_ledger(asked, open_storage(storage))
    return Study(question=asked, store=Store(folder), ledger=ledger, run_trial=machine).run()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_plan_runs_twice_and_effort_counts_finished_trials(sampler: str, tmp_path: Path) -> None:
    asked, machine = question(search={"sampler": sampler}, effort={"max_trials": 11}), Machine()
    result = run(asked, machine, tmp_path)
    assert result.num_run == 11 == len(machine.counts)
    assert max(machine.counts.values()) == 1
    assert next(iter(machine.counts)) == "resident"
    assert len(Store(tmp_path).records()) == 11


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_small_space_is_finished_and_the_search_stops(sampler: str, tmp_path: Path) -> None:
    asked = question(space={"strategies": {"vae": {"tile": True}}}, search={"sampler": sampler})
    machine = Machine()
    result = run(asked, machine, tmp_path)
    assert sorted(machine.counts.items()) == [("resident", 1), ("vae:tile", 1), ("vae:tile(size=256)", 1)]
    assert result.stopped == "every plan of the space is answered"


def test_constraints_are_set_on_every_trial_also_on_failures(tmp_path: Path) -> None:
    def judge(plan: Plan) -> tuple[Outcome, float, float]:
        outcome, seconds, gib = made_up(plan)
        return (Outcome.CRASHED if "tile" in str(plan) else outcome), seconds, gib

    asked = question(search={"sampler": "tpe"}, effort={"max_trials": 25})
    ledger = open_ledger(asked, open_storage(None))
    machine = Machine(judge, card_gib=16)
    result = Study(question=asked, store=Store(tmp_path), ledger=ledger, run_trial=machine).run()
    outcomes = {record.outcome for record in result.records}
    assert {Outcome.COMPLETE, Outcome.OOM, Outcome.CRASHED} <= outcomes
    trials = ledger.study.get_trials()
    assert {trial.state.name for trial in trials} <= {"COMPLETE", "FAIL"}
    for trial in trials:
        if trial.state.name == "COMPLETE":
            assert set(trial.constraints) == {"outcome", "device_memory"}
            assert math.isfinite(trial.value)
    assert ledger.study.best_trial.user_attrs["told"]["excess"] <= 0


def test_resume_runs_only_what_is_left(tmp_path: Path) -> None:
    url = str(tmp_path / "study.journal")
    machine = Machine(lambda plan: (Outcome.CRASHED, 1.0, 1.0) if "keep" in str(plan) else made_up(plan))
    run(question(effort={"max_trials": 4}), machine, tmp_path, url)
    assert sum(machine.counts.values()) == 4
    result = run(question(effort={"max_trials": 10}), machine, tmp_path, url)
    assert sum(machine.counts.values()) == 10 == result.num_run
    assert max(machine.counts.values()) == 1


def test_another_study_reuses_what_is_recorded_without_counting_it(tmp_path: Path) -> None:
    machine = Machine()
    run(question(search={"sampler": "grid"}, effort={"max_trials": 10}), machine, tmp_path)
    wider = question(search={"sampler": "grid"}, effort={"max_trials": 5})
    result = run(wider, machine, tmp_path)
    assert result.num_reused == 10
    assert result.num_run == 5
    assert max(machine.counts.values()) == 1


def test_a_changed_space_starts_a_new_study_and_keeps_the_records(tmp_path: Path) -> None:
    url, machine = str(tmp_path / "study.journal"), Machine()
    small = {"strategies": {"vae": {"tile": {"size": [256]}}}}
    large = {"strategies": {"vae": {"tile": {"size": [512, 256]}}}}
    run(question(space=small), machine, tmp_path, url)
    run(question(space=large), machine, tmp_path, url)
    run(question(space=small), machine, tmp_path, url)
    assert max(machine.counts.values()) == 1 and len(machine.counts) == 3


@pytest.mark.parametrize("bad", [(math.nan,), (math.inf,), (-1.0,), (0.0,), ("1.0",), (None,), ()])
def test_a_latency_that_is_no_positive_number_is_a_failed_trial(bad: tuple[object, ...], tmp_path: Path) -> None:
    import dataclasses

    def broken(trial: Trial) -> Record:
        return dataclasses.replace(Machine()(trial), latency_s=bad)

    result = run(question(effort={"max_trials": 3}), broken, tmp_path)
    assert {record.outcome for record in result.records} == {Outcome.CRASHED}
    assert "not a positive number" in str(result.records[0].reason)


def test_everything_fails_and_the_summary_is_clean(tmp_path: Path) -> None:
    result = run(question(effort={"max_trials": 6}), Machine(lambda plan: (Outcome.CRASHED, 1.0, 1.0)), tmp_path)
    assert result.num_run == 6


def test_several_workers_share_the_work(tmp_path: Path) -> None:
    machine = Machine()
    result = run(question(effort={"max_trials": 20, "workers": 4}), machine, tmp_path)
    assert result.num_run == 20 == sum(machine.counts.values())


def test_patience_ends_a_search_that_gains_nothing(tmp_path: Path) -> None:
    flat = Machine(lambda plan: (Outcome.COMPLETE, 5.0, 1.0))
    result = run(question(effort={"max_trials": 60, "patience": 5}), flat, tmp_path)
    assert result.num_run == 6
    assert "gained nothing" in result.stopped


def test_a_lossy_plan_that_may_not_win_is_no_gain(tmp_path: Path) -> None:
    """The first lossy plan is the fastest by far; that the exact ones after it keep gaining must still be seen."""
    seconds = iter(range(100, 0, -1))
    machine = Machine(lambda plan: (Outcome.COMPLETE, 0.1 if plan.is_lossy else float(next(seconds)), 1.0))
    result = run(question(effort={"max_trials": 30, "patience": 8}), machine, tmp_path)
    assert any(record.is_lossy for record in result.records)
    assert result.num_run == 30


def test_seconds_end_a_search(tmp_path: Path) -> None:
    asked = question(effort={"max_trials": 60, "max_seconds": 5})
    ticks = iter(range(1000))
    ledger = open_ledger(asked, open_storage(None))
    study = Study(
        question=asked, store=Store(tmp_path), ledger=ledger, run_trial=Machine(), clock=lambda: float(next(ticks))
    )
    assert study.run().num_run < 6


def test_an_interrupt_keeps_everything_and_resumes(tmp_path: Path) -> None:
    machine = Machine()

    def interrupted(trial: Trial) -> Record:
        if len(machine.counts) == 3:
            raise KeyboardInterrupt
        return machine(trial)

    url = f"sqlite:///{tmp_path}/study.db"
    with pytest.raises(KeyboardInterrupt):
        run(question(effort={"max_trials": 8}), interrupted, tmp_path, url)
    assert len(Store(tmp_path).records()) == 3
    result = run(question(effort={"max_trials": 8}), machine, tmp_path, url)
    assert result.num_run == 8 and max(machine.counts.values()) == 1


def test_an_error_in_one_worker_stops_the_others_after_their_trial(tmp_path: Path) -> None:
    machine = Machine()

    def broken(trial: Trial) -> Record:
        if trial.plan == "resident":
            raise OSError("no space left on device")
        return machine(trial)

    with pytest.raises(OSError, match="no space"):
        run(question(effort={"max_trials": 100, "workers": 3}), broken, tmp_path)
    assert sum(machine.counts.values()) < 50
    result = run(question(effort={"max_trials": 12}), machine, tmp_path)
    assert "resident" in {record.plan for record in result.records}
    assert max(machine.counts.values()) == 1


def test_an_unknown_sampler_is_named() -> None:
    with pytest.raises(ValueError, match="does not exist"):
        sampler_for(Search.model_construct(sampler="best", seed=0), question().encoding)
