"""From question to answer on a made-up machine: verified under the cap, the next one when that fails, finalists."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.toy_space import GIB, Machine, made_record, question

from paretune.harness.records import Outcome, Record, Trial
from paretune.harness.search.open import open_ledger
from paretune.harness.storage import open_storage
from paretune.harness.store import Store
from paretune.harness.tuning import Answer, answer_from, tune


def ask(machine: object, folder: Path, **changes: object) -> Answer:
    asked = question(**{"effort": {"max_trials": 25, "finalists": 0}, **changes})
    ledger = open_ledger(asked, open_storage(None))
    return tune(asked, store=Store(folder), ledger=ledger, run_trial=machine)  # type: ignore[arg-type]


def test_the_answer_is_verified_in_a_run_of_its_own(tmp_path: Path) -> None:
    trials: list[Trial] = []
    machine = Machine()

    def watched(trial: Trial) -> Record:
        trials.append(trial)
        return machine(trial)

    answer = ask(watched, tmp_path)
    assert answer.recommendation.status == "verified"
    last = trials[-1]
    assert last.device_memory_bytes == 12 * GIB and last.options == {"purpose": "verification"}
    assert answer.recommendation.chosen is not None and last.plan == answer.recommendation.chosen.plan


def test_when_verification_fails_the_next_plan_is_tried(tmp_path: Path) -> None:
    machine, refused = Machine(), list[str]()

    def strict(trial: Trial) -> Record:
        if trial.options.get("purpose") == "verification" and len(refused) < 2:
            refused.append(trial.plan)
            return made_record(trial, Outcome.OOM, 1.0, 13.0)
        return machine(trial)

    answer = ask(strict, tmp_path)
    assert len(set(refused)) == 2
    assert answer.recommendation.status == "verified"
    assert answer.recommendation.chosen is not None and answer.recommendation.chosen.plan not in refused


def test_nothing_fits_is_an_answer(tmp_path: Path) -> None:
    answer = ask(Machine(), tmp_path, budget={"device_memory": "1GiB"}, effort={"max_trials": 10})
    assert answer.recommendation.chosen is None
    assert answer.recommendation.closest is not None and answer.recommendation.missing_bytes


def test_finalists_are_measured_again_in_turns(tmp_path: Path) -> None:
    machine = Machine()
    ask(machine, tmp_path, allow_lossy=True, effort={"max_trials": 40, "finalists": 3})
    finals = [r for r in Store(tmp_path).records() if r.options.get("purpose") == "final"]
    assert len(finals) in (2, 3)
    assert all(len(record.latency_s) == 2 for record in finals)


def test_one_study_answers_the_ladder(tmp_path: Path) -> None:
    sizes = ["6GiB", "12GiB", "16GiB", "32GiB", "48GiB"]
    answer = ask(Machine(), tmp_path, ladder=sizes, effort={"max_trials": 40, "finalists": 0})
    latencies = [s.chosen.median_latency_s for s in answer.ladder if s.chosen]
    assert len(latencies) >= 4
    assert latencies == sorted(latencies, reverse=True)  # type: ignore[type-var]


def test_records_answer_again_without_running(tmp_path: Path) -> None:
    first = ask(Machine(), tmp_path)
    again = answer_from(first.question, Store(tmp_path))
    assert again.recommendation.sentence == first.recommendation.sentence


def test_records_of_other_workloads_and_devices_are_left_out(tmp_path: Path) -> None:
    first = ask(Machine(), tmp_path)
    store = Store(tmp_path)
    assert all(first.question.answers(record) for record in store.records())
    for other in (question(workload="other"), question(device="toy:1")):
        assert not any(other.answers(record) for record in store.records())


def test_forecasts_are_judged_by_what_was_measured() -> None:
    from paretune.harness.search.quality import prior_quality
    from paretune.harness.search.residual import Forecast

    asked, machine = question(), Machine()
    records = [machine(asked.trial(plan)) for plan in asked.encoding.plans[:12]]
    exact = {r.plan: Forecast(latency_s=(r.median_latency_s or 0) / 2) for r in records}
    good = prior_quality(exact, records)
    assert good is not None and good.rank_correlation > 0.99 and abs(good.bias - 2) < 1e-9
    backwards = {plan: Forecast(latency_s=1 / (f.latency_s or 1)) for plan, f in exact.items()}
    bad = prior_quality(backwards, records)
    assert bad is not None and bad.rank_correlation < -0.9
    assert prior_quality({}, records) is None


def test_a_prior_from_the_simulated_sibling_covers_every_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from paretune.harness.search.prior import SimulatedPrior

    monkeypatch.setattr("paretune.harness.search.prior._NUM_SIMULATED", 12)
    asked, machine = question(), Machine()
    told = SimulatedPrior(asked, "rtx-4070", Store(tmp_path), machine)()
    assert set(told) == set(asked.encoding.plans)
    assert all((f.latency_s or 0) > 0 and (f.need_bytes or 0) > 0 for f in told.values())
    assert {r.device for r in Store(tmp_path).records()} == {"sim:rtx-4070,memory=1TiB"}
