"""Choices that are equal to Python, and choices that change between two runs: nothing is mixed up, nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from support import toy_space
from support.toy_space import Machine, question

from paretune.harness.joining import join
from paretune.harness.question import Question
from paretune.harness.search.features import features_of
from paretune.harness.search.open import open_ledger, study_name
from paretune.harness.spec import SAMPLERS
from paretune.harness.storage import open_storage
from paretune.harness.store import Store
from paretune.harness.study import Study, StudyResult
from paretune.strategies import ComponentStrategy, Plan, tunable

EQUAL = (1, True, 1.0, "1", 0, False, 0.0, "True")


@dataclass(frozen=True, kw_only=True)
class Odd(ComponentStrategy):
    name: ClassVar[str] = "odd"
    way: bool | int | float | str | None = tunable(default=None, choices=(None, *EQUAL))

    def apply(self, model: Any, device: Any, undo: Any) -> None: ...


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Question]:
    monkeypatch.setattr(toy_space, "TOYS", MappingProxyType({"odd": Odd}))
    yield question(space={"strategies": {"denoiser": {"odd": {"way": list(EQUAL), "always": True}}}})


def run(asked: Question, machine: Machine, folder: Path, storage: str | None = None) -> StudyResult:
    ledger = open_ledger(asked, open_storage(storage))
    return Study(question=asked, store=Store(folder), ledger=ledger, run_trial=machine).run()


def test_equal_values_are_plans_of_their_own_with_keys_of_their_own(odd: Question) -> None:
    plans = odd.encoding.plans
    assert len(plans) == len(EQUAL) + 1 == len({odd.key(plan) for plan in plans})
    assert len({json.dumps(odd.encoding.params(plan)) for plan in plans}) == len(plans)
    for plan in plans:
        assert odd.encoding.plan(odd.encoding.params(plan)) == plan == str(Plan.parse(plan))
    names = features_of(odd.encoding.parsed).names
    assert {'transformer:odd.way="1"', "transformer:odd.way=true", "transformer:odd.way=True"} <= set(names)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_one_of_equal_values_is_measured_once(sampler: str, odd: Question, tmp_path: Path) -> None:
    asked = question(space=odd.spec.space.model_dump(), search={"sampler": sampler})
    machine = Machine()
    result = run(asked, machine, tmp_path, str(tmp_path / "study.journal"))
    assert machine.counts == dict.fromkeys(odd.encoding.plans, 1)
    assert {record.plan for record in result.records} == set(odd.encoding.plans)
    again = run(asked, machine, tmp_path, str(tmp_path / "study.journal"))
    assert sum(machine.counts.values()) == len(odd.encoding.plans) == len(again.records)


def backends(*names: str, **changes: Any) -> Question:
    return question(space={"strategies": {"denoiser": {"cast": True, "fast": {"backend": list(names)}}}}, **changes)


@pytest.mark.parametrize("storage", ["study.journal", "sqlite"])
@pytest.mark.parametrize("later", [("a", "b", "c"), ("a",), ("b", "a"), ("c",)])
def test_back_ends_that_come_go_or_change_places_cost_no_measurement(
    later: tuple[str, ...], storage: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/study.db" if storage == "sqlite" else str(tmp_path / storage)
    machine = Machine()
    run(backends("a", "b"), machine, tmp_path, url)
    before = set(machine.counts)
    asked = backends(*later)
    result = run(asked, machine, tmp_path, url)
    assert max(machine.counts.values()) == 1
    assert set(machine.counts) == before | set(asked.encoding.plans)
    assert {record.plan for record in result.records} == set(asked.encoding.plans)
    assert result.num_reused == len(before & set(asked.encoding.plans))
    run(backends("a", "b"), machine, tmp_path, url)
    assert max(machine.counts.values()) == 1, "the first question's answers are all still there"


def test_what_another_machine_measured_for_other_choices_is_found_in_the_storage(tmp_path: Path) -> None:
    url, machine = str(tmp_path / "study.journal"), Machine()
    run(backends("a", "b"), machine, tmp_path / "one", url)
    result = run(backends("a", "b", "c"), machine, tmp_path / "two", url)
    assert max(machine.counts.values()) == 1 and result.num_run == len(machine.counts) - result.num_reused
    assert {record.plan for record in Store(tmp_path / "two").records()} == set(machine.counts)


def test_other_workloads_of_the_storage_are_left_alone(tmp_path: Path) -> None:
    url, machine = str(tmp_path / "study.journal"), Machine()
    run(backends("a", workload={"name": "toy", "steps": 3}), machine, tmp_path, url)
    result = run(backends("a", "b"), machine, tmp_path / "other", url)
    assert result.num_reused == 0 and machine.counts["resident"] == 2


def test_a_worker_that_would_choose_from_other_plans_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = str(tmp_path / "study.journal"), backends("a", "b")
    open_ledger(asked, open_storage(url))
    monkeypatch.setattr("paretune.harness.joining.prepare", lambda spec: backends("a", "b", "c"))
    with pytest.raises(ValueError, match="chooses from other plans than this installation offers"):
        join(url, study_name(asked), output=tmp_path, run_trial=Machine())
