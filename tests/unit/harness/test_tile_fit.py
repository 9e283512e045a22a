"""The largest tile that fits a cap: found in few runs, never beyond the cap, only where a size may be chosen."""

from __future__ import annotations

import math
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
from paretune.harness.tile_fit import forecast_needs
from paretune.harness.tuning import Answer, tune
from paretune.strategies import Plan, VaeTiling

SIZES = [256, 512]


def asked(cap: str | None, tile_size: object = SIZES, **changes: object) -> Question:
    document = {
        "workload": {"name": "toy", "height": 1536, "width": 1024},
        "device": "toy:0",
        "budget": {"device_memory": cap} if cap else {},
        "allow_lossy": True,
        "effort": {"finalists": 0},
        "space": {"strategies": {"vae": {"vae_tiling": {"tile_size": tile_size}}}},
        **changes,
    }
    return prepare(parse(document), where=WHERE, components=COMPONENTS)


def grows(
    floor_gib: float, per_megapixel_gib: float, exponent: float = 2.0
) -> Callable[[Plan], tuple[Outcome, float, float]]:
    """A decode whose memory and time follow the tile; ``floor_gib`` is what another phase needs."""

    def judge(plan: Plan) -> tuple[Outcome, float, float]:
        told = next((s.strategy.tile_size for s in plan if isinstance(s.strategy, VaeTiling)), 1536)
        tile = told if isinstance(told, int) else max(told)
        peak = max(floor_gib, 2.0 + per_megapixel_gib * (tile / 1024) ** exponent)
        return Outcome.COMPLETE, 10.0 + 256 / tile * 4, peak

    return judge


def answer(question: Question, machine: Machine, folder: Path) -> Answer:
    ledger = open_ledger(question, open_storage(None))
    return tune(question, store=Store(folder), ledger=ledger, run_trial=machine)


def tile_of(found: Answer) -> int:
    assert found.recommendation.chosen is not None
    (setting,) = Plan.parse(found.recommendation.chosen.plan)
    assert isinstance(setting.strategy, VaeTiling) and isinstance(setting.strategy.tile_size, int)
    return setting.strategy.tile_size


@pytest.mark.parametrize("floor", [0.0, 3.0, 5.5])
@pytest.mark.parametrize("exponent", [1.6, 2.0, 2.6])
@pytest.mark.parametrize("cap", ["6GiB", "8GiB", "11GiB"])
def test_the_largest_that_fits_is_recommended_after_few_runs(
    floor: float, exponent: float, cap: str, tmp_path: Path
) -> None:
    question, machine = asked(cap), Machine(grows(floor, 8.0, exponent))
    cap_bytes = question.budget.device_memory
    assert cap_bytes is not None
    found = answer(question, machine, tmp_path)
    fitting = [t for t in range(256, 1536, 64) if need_at(t, floor, exponent) <= cap_bytes]
    assert tile_of(found) in (max(fitting), max(fitting) - 64)
    assert len(machine.counts) <= 3 + 5 and found.recommendation.status == "verified"


def need_at(tile: int, floor: float, exponent: float) -> int:
    """As ``need_of`` adds for a measured peak: 3 %, at least 256 MiB."""
    peak = int(max(floor, 2.0 + 8.0 * (tile / 1024) ** exponent) * GIB)
    return peak + max(math.ceil(peak * 0.03), 2**28)


def test_the_stated_need_is_the_one_that_is_compared(tmp_path: Path) -> None:
    found = answer(asked("8GiB"), Machine(grows(0.0, 8.0)), tmp_path)
    chosen = found.recommendation.chosen
    assert chosen is not None and (need := need_of(chosen)) is not None
    assert need.total_bytes == need_at(tile_of(found), 0.0, 2.0) <= 8 * GIB < need_at(tile_of(found) + 128, 0.0, 2.0)


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (asked(None), "no cap"),
        (asked("6GiB", [256]), "one size is no choice"),
        (asked("6GiB", [[256, 320], [320, 256]]), "oblong tiles were asked for"),
        (asked("64GiB"), "all of it fits untiled"),
        (asked("6GiB", allow_lossy=False), "tiling may change the output"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_beyond_the_space_runs_where_nothing_is_to_be_chosen(
    question: Question, why: str, tmp_path: Path
) -> None:
    machine = Machine(grows(0.0, 8.0))
    answer(question, machine, tmp_path)
    assert set(machine.counts) <= {str(plan) for plan in question.plans.feasible}, why


def test_a_tile_that_runs_out_of_memory_is_not_the_end(tmp_path: Path) -> None:
    machine = Machine(grows(5.9, 8.0, 4.0), card_gib=7.0)
    found = answer(asked("7GiB"), machine, tmp_path)
    assert tile_of(found) > 512
    assert any("tile_size" in plan for plan in machine.counts)


def test_asking_again_runs_no_size_twice(tmp_path: Path) -> None:
    machine = Machine(grows(0.0, 8.0))
    first = answer(asked("8GiB"), machine, tmp_path)
    ran = dict(machine.counts)
    second = answer(asked("8GiB"), machine, tmp_path)
    assert tile_of(first) == tile_of(second)
    assert set(machine.counts) == set(ran)


def test_a_forecast_never_falls_and_goes_through_what_was_seen() -> None:
    seen = {256: 40, 512: 30, 768: 90}
    forecast = forecast_needs(seen)
    assert [forecast(side) for side in seen] == [40, 40, 90]
    told = [forecast(side) for side in range(64, 2048, 64)]
    assert told == sorted(told)
    alone = forecast_needs({512: 100})
    assert (alone(512), alone(1024)) == (100, 400)
