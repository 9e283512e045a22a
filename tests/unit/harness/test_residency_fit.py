"""What a plan leaves free of the cap becomes resident blocks: in few runs, never beyond the cap, only where asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.toy_space import COMPONENTS, GIB, WHERE, Machine

from paretune.harness.config import parse
from paretune.harness.constraints import need_of
from paretune.harness.question import Question, prepare
from paretune.harness.records import Outcome
from paretune.harness.search.open import open_ledger
from paretune.harness.storage import open_storage
from paretune.harness.store import Store
from paretune.harness.tuning import Answer, tune
from paretune.strategies import BlockResidency, Plan
from paretune.strategies.sizes import parse_size

Judge = Callable[[Plan], tuple[Outcome, float, float]]


def asked(cap: str | None, sizes: list[str] | None = None) -> Question:
    document = {
        "workload": "toy",
        "device": "toy:0",
        "budget": {"device_memory": cap} if cap else {},
        "effort": {"finalists": 0},
        "space": {"strategies": {"denoiser": {"block_residency": {"resident_bytes": sizes or ["1GiB", "4GiB"]}}}},
    }
    return prepare(parse(document), where=WHERE, components=COMPONENTS)


def streams(all_blocks_gib: float, rest_gib: float, surprise_gib: float = 0.0) -> Judge:
    """Memory is what stays and the rest; time falls with every block that stays. From 6 GiB on a surprise comes on top."""

    def judge(plan: Plan) -> tuple[Outcome, float, float]:
        told = [s.strategy.resident_bytes for s in plan if isinstance(s.strategy, BlockResidency)]
        kept = min(parse_size(told[0]) / GIB, all_blocks_gib) if told and told[0] is not None else all_blocks_gib
        more = surprise_gib if kept > 6 else 0.0
        return Outcome.COMPLETE, 10.0 + (all_blocks_gib - kept), kept + rest_gib + more

    return judge


def answer(question: Question, machine: Machine, folder: Path) -> Answer:
    return tune(question, store=Store(folder), ledger=open_ledger(question, open_storage(None)), run_trial=machine)


def kept_gib(found: Answer) -> float:
    assert found.recommendation.chosen is not None
    (told,) = [
        s.strategy for s in Plan.parse(found.recommendation.chosen.plan) if isinstance(s.strategy, BlockResidency)
    ]
    return parse_size(told.resident_bytes) / GIB


@pytest.mark.parametrize(("cap", "rest"), [("8GiB", 1.0), ("11GiB", 2.5), ("16GiB", 0.3)])
def test_blocks_stay_until_the_cap_is_full(cap: str, rest: float, tmp_path: Path) -> None:
    question, machine = asked(cap), Machine(streams(20.0, rest))
    found = answer(question, machine, tmp_path)
    chosen, cap_bytes = found.recommendation.chosen, question.budget.device_memory
    assert chosen is not None and cap_bytes is not None and (need := need_of(chosen)) is not None
    assert cap_bytes - GIB // 2 < need.total_bytes <= cap_bytes
    assert found.recommendation.status == "verified" and len(machine.counts) <= 3 + 4


def test_a_size_that_did_not_fit_is_not_the_end(tmp_path: Path) -> None:
    found = answer(asked("10GiB"), Machine(streams(20.0, 1.0, surprise_gib=4.0)), tmp_path)
    assert 4 < kept_gib(found) <= 6


@pytest.mark.parametrize(
    ("question", "why"),
    [(asked(None), "no cap"), (asked("8GiB", ["4GiB"]), "one size is no choice"), (asked("64GiB"), "all of it fits")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_beyond_the_space_runs_where_nothing_is_to_be_chosen(
    question: Question, why: str, tmp_path: Path
) -> None:
    machine = Machine(streams(20.0, 1.0))
    answer(question, machine, tmp_path)
    assert set(machine.counts) <= {str(plan) for plan in question.plans.feasible}, why


def test_the_last_block_is_the_end(tmp_path: Path) -> None:
    machine = Machine(streams(4.5, 1.0))
    question = asked("5GiB")
    found = answer(question, machine, tmp_path)
    assert found.recommendation.chosen is not None
    assert len(machine.counts) <= 3 + 4
