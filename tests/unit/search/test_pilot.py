"""A short call first: it stops what does not fit or is too slow, and what it saw is never taken for a measurement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.toy_space import GIB, Machine, made_record, made_up, question

from paretune.harness import environment
from paretune.harness.constraints import need_of
from paretune.harness.perform import perform
from paretune.harness.pilot import PILOT, Bar, Pilot, Stopped, predicted_latency_s
from paretune.harness.recommend import recommend
from paretune.harness.records import Outcome, Procedure, Record, Trial
from paretune.harness.search.open import open_ledger
from paretune.harness.spec import Budget
from paretune.harness.storage import open_storage
from paretune.harness.store import Store
from paretune.harness.study import Study, StudyResult
from paretune.harness.tuning import tune
from paretune.harness.workloads.base import Workload
from paretune.strategies import Plan


def pilot(*bars: tuple[int | None, float | None]) -> Pilot:
    return Pilot(bars=tuple(Bar(memory_bytes=size, latency_s=seconds) for size, seconds in bars))


@pytest.mark.parametrize(
    ("bars", "need", "stops"),
    [
        (((10, 9.0),), 8, "1.22x the fastest known"),  # 1 + 10 x 1.0 = 11 s, more than 1.15 x 9 s
        (((10, 9.6),), 8, None),
        (((10, None),), 8, None),  # nothing fits yet, so nothing is too slow
        (((10, 1.0), (20, 10.0)), 15, None),  # good enough for the larger size, which alone holds it
        (((10, 1.0), (20, 2.0)), 25, "needs 0.00 GiB"),
        (((None, 1.0),), None, "11.00x"),
    ],
)
def test_when_a_trial_is_stopped(bars: Any, need: int | None, stops: str | None) -> None:
    def judged() -> dict[str, Any]:
        return pilot(*bars).judge(1.0, (5.0, 1.0), 12, need)

    if stops is None:
        assert judged()["predicted_latency_s"] == 11.0
        return
    with pytest.raises(Stopped, match=stops) as stop:
        judged()
    assert stop.value.told["need_bytes"] == need


def test_without_step_times_only_size_stops() -> None:
    assert pilot((None, 1e-9)).judge(1.0, (), 12, None)["predicted_latency_s"] is None
    with pytest.raises(Stopped, match="more than"):
        pilot((10, None)).judge(1.0, (), 12, 11)


def test_a_pilot_survives_json_and_leaves_identity_alone() -> None:
    plain = Trial(workload={"name": "toy"}, device="toy:0")
    asked = dataclasses.replace(plain, options=pilot((10, None), (20, 2.0)).options())
    again = Trial.from_json(asked.to_json())
    assert Pilot.of(again.options) == pilot((10, None), (20, 2.0))
    assert again.key({}) == plain.key({})


def test_bars_are_the_fastest_that_may_be_recommended() -> None:
    asked = question()
    records = [Machine()(asked.trial(plan)) for plan in asked.encoding.plans]
    small, large = 8 * GIB, 48 * GIB
    made = Pilot.against(records, [small, large], asked.budget, allow_lossy=False)
    fits = {cap: [r for r in records if not r.is_lossy and _need(r) <= cap] for cap in (small, large)}
    assert [bar.latency_s for bar in made.bars] == [min(r.latency_s[0] for r in fits[cap]) for cap in (small, large)]
    assert Pilot.against([], [small], Budget(), allow_lossy=True).bars == (Bar(memory_bytes=small, latency_s=None),)


def _need(record: Record) -> int:
    need = need_of(record)
    assert need is not None
    return need.total_bytes


class Stepping(Workload):
    """A call of 40 steps, each a small product, that says how many steps each call made."""

    def __init__(self, calls: list[int], num_steps: int = 40) -> None:
        self.calls, self.num_steps = calls, num_steps
        self.spec = {"name": "stepping", "steps": num_steps}

    @property
    def phases(self) -> tuple[str, ...]:
        return ("denoise", "decode")

    def load(self) -> Any:
        import torch

        return torch.nn.Linear(64, 64, bias=False)

    def run(self, loaded: Any, *, device: Any, observer: Any = None) -> Any:
        import torch

        with torch.no_grad():
            value = torch.ones(64, 64)
            observer.phase("denoise")
            for _ in range(self.num_steps):
                observer.step()
                value = loaded(value)
            observer.phase("decode")
        self.calls.append(self.num_steps)
        return value * 0

    def with_steps(self, num_steps: int) -> Workload:
        return Stepping(self.calls, num_steps)


QUICK = Procedure(num_warmup=1, min_iterations=1, max_iterations=1)


def performed(asked: Pilot | None, num_steps: int = 40) -> tuple[Record, list[int]]:
    calls: list[int] = []
    options = asked.options() if asked else {}
    trial = Trial(workload={"name": "sd1.5-tiny"}, device="cpu", procedure=QUICK, options=options)
    return perform(trial, lambda _: None, Stepping(calls, num_steps)), calls


@pytest.mark.parametrize(("bars", "why"), [((None, 1e-12), "the fastest known"), ((1, None), "more than 0.00 GiB")])
def test_a_stopped_trial_never_makes_the_full_call_again(bars: tuple[int | None, float | None], why: str) -> None:
    record, calls = performed(pilot(bars))
    assert record.outcome is Outcome.STOPPED and why in str(record.reason)
    assert calls == [40, 2, 2]  # the first is the pass that traces memory on the CPU
    assert record.latency_s == () and record.options == {"purpose": PILOT}
    assert all(phase.duration_s is None for phase in record.phases.values())
    assert record.facts[PILOT]["num_steps"] == 2 and record.facts[PILOT]["of"] == 40
    assert (predicted_latency_s(record) or 0) > 0
    assert record.key != performed(None)[0].key


def test_a_survivor_is_the_same_record_as_without_pilot() -> None:
    tried, calls = performed(pilot((None, 1e9)))
    plain, _ = performed(None)
    assert tried.outcome is Outcome.COMPLETE, tried.reason
    assert calls == [40, 2, 2, 40, 40]
    assert tried.key == plain.key and tried.options == plain.options == {}
    assert tried.first_call_s is None and plain.first_call_s is not None
    assert predicted_latency_s(tried) is None and tried.facts[PILOT]["predicted_latency_s"] > 0


def test_few_steps_have_no_pilot() -> None:
    record, calls = performed(pilot((None, 1e-12)), num_steps=4)
    assert record.outcome is Outcome.COMPLETE and 2 not in calls


def obeying(machine: Machine) -> Callable[[Trial], Record]:
    """A made-up machine that stops what its pilot would stop."""

    def run(trial: Trial) -> Record:
        record, asked = machine(trial), Pilot.of(trial.options)
        if asked is None or not record.is_complete:
            return record
        try:
            seconds = record.latency_s[0]
            asked.judge(seconds / 10, (seconds / 20,), 20, _need(record))
        except Stopped as stop:
            short = dataclasses.replace(trial, options={"purpose": PILOT})
            stopped = made_record(short, Outcome.COMPLETE, *made_up(Plan.parse(trial.plan))[1:])
            facts = {PILOT: stop.told}
            return dataclasses.replace(
                stopped,
                outcome=Outcome.STOPPED,
                reason=str(stop),
                latency_s=(),
                facts=facts,
                key=short.key(environment.versions()),
            )
        return record

    return run


def searched(folder: Path, storage: str | None = None, **changes: Any) -> tuple[StudyResult, Any]:
    asked = question(**{"effort": {"max_trials": 30}, **changes})
    ledger = open_ledger(asked, open_storage(storage))
    result = Study(question=asked, store=Store(folder), ledger=ledger, run_trial=obeying(Machine())).run()
    return result, ledger


@pytest.mark.parametrize("sampler", ["residual", "tpe", "coordinate"])
def test_stopped_trials_are_finished_trials_with_a_prediction(sampler: str, tmp_path: Path) -> None:
    result, ledger = searched(tmp_path, search={"sampler": sampler})
    stopped = {r.plan for r in result.records if r.outcome is Outcome.STOPPED}
    assert stopped and result.num_run == 30
    told = [t.user_attrs["told"] for t in ledger.study.get_trials() if "told" in t.user_attrs]
    of_stopped = [t for t in told if t["plan"] in stopped]
    assert all(t["outcome"] == "stopped" and t["latency_s"] > 0 and t["need_bytes"] > 0 for t in of_stopped)
    assert ledger.study.best_trial.user_attrs["told"]["outcome"] == "complete"


def test_the_answer_is_the_same_and_never_a_stopped_plan(tmp_path: Path) -> None:
    everything = {"effort": {"max_trials": 400}}
    with_pilot, _ = searched(tmp_path / "with", **everything, search={"sampler": "random"})
    without, _ = searched(tmp_path / "without", **everything, search={"sampler": "random", "pilot": False})
    assert not any(r.outcome is Outcome.STOPPED for r in without.records)
    budget = question().budget
    one, other = recommend(with_pilot.records, budget), recommend(without.records, budget)
    assert one.chosen is not None and other.chosen is not None and one.chosen.plan == other.chosen.plan
    assert any(r.outcome is Outcome.STOPPED for r in with_pilot.records) and one.status == "measured"


def test_another_study_does_not_take_a_stopped_trial_for_an_answer(tmp_path: Path) -> None:
    first, _ = searched(tmp_path)
    stopped = next(r.plan for r in first.records if r.outcome is Outcome.STOPPED)
    machine = Machine()
    asked = question(space={"plans": [stopped]}, budget={"device_memory": "48GiB"})
    ledger = open_ledger(asked, open_storage(None))
    again = Study(question=asked, store=Store(tmp_path), ledger=ledger, run_trial=machine).run()
    assert machine.counts[stopped] == 1
    assert next(r for r in again.records if r.plan == stopped).is_complete


def test_a_fuller_record_of_a_plan_counts_before_a_stopped_one(tmp_path: Path) -> None:
    result, _ = searched(tmp_path)
    stopped = next(r for r in result.records if r.outcome is Outcome.STOPPED)
    full = Machine()(question().trial(stopped.plan))
    best = recommend([full, stopped], Budget(), allow_lossy=True)
    assert best.chosen is not None and best.chosen.is_complete and best.chosen.plan == stopped.plan


def test_the_answer_says_how_many_trials_were_stopped(tmp_path: Path) -> None:
    asked = question(effort={"max_trials": 30, "finalists": 0})
    ledger = open_ledger(asked, open_storage(None))
    answer = tune(asked, store=Store(tmp_path), ledger=ledger, run_trial=obeying(Machine()))
    num_stopped = sum(record.outcome is Outcome.STOPPED for record in answer.records)
    assert num_stopped and f"({num_stopped} stopped early)" in answer.extent
