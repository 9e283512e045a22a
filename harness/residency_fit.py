"""Let as many blocks stay as fit: what the recommended plan leaves free of the cap becomes resident, then it runs again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from paretune.harness.constraints import need_against
from paretune.harness.question import Question
from paretune.harness.recommend import recommend
from paretune.harness.records import Record
from paretune.strategies import BlockResidency, Plan, Setting
from paretune.strategies.sizes import format_size, parse_size

__all__ = ["try_more_residents"]

_STEP_BYTES = 256 << 20
_MAX_RUNS = 4
_SHARE = 0.95
"""Of what is spare: the margin of a need grows with the need itself, by at most so much."""


def try_more_residents(
    question: Question, records: Sequence[Record], run: Callable[[str], Record]
) -> Iterator[tuple[str, Record]]:
    """Run the recommended plan with its spare memory given to resident blocks, until no more fits, a few times.

    ``run`` measures a plan. Each plan comes with its record as it is made; its ``resident_bytes`` is a size like any
    other. Nothing is done without a cap, where the space leaves no choice of ``resident_bytes``, or where the
    recommended plan keeps blocks of no component, or of several. What was measured is compared, as always.
    """
    cap_bytes = question.budget.device_memory
    if cap_bytes is None or not _is_open(question):
        return
    spec = question.spec
    best = recommend(records, question.budget, allow_lossy=spec.allow_lossy, objective=spec.objective).chosen
    if best is None or (low := _resident_bytes(Plan.parse(best.plan))) is None:
        return
    plan, need, high = Plan.parse(best.plan), need_against(best, cap_bytes), None
    for _ in range(_MAX_RUNS):
        wanted = _next(low, high, cap_bytes - need)
        if wanted is None:
            return
        text = str(_with_resident(plan, wanted))
        record = run(text)
        yield text, record
        found = need_against(record, cap_bytes)
        if found > cap_bytes:
            high = wanted
        elif found <= need:
            return  # every block stays already
        else:
            low, need = wanted, found


def _next(low: int, high: int | None, spare: int) -> int | None:
    """The size to run: all that is spare, or the middle once that much was seen not to fit; ``None`` for no step."""
    wanted = low + int(max(spare, 0) * _SHARE) // _STEP_BYTES * _STEP_BYTES
    if high is not None and wanted >= high:
        wanted = low + (high - low) // 2 // _STEP_BYTES * _STEP_BYTES
    return wanted if wanted > low else None


def _is_open(question: Question) -> bool:
    """Whether the space lets the search choose how much stays."""
    settings = (setting for axis in question.plans.axes for each in axis.alternatives for setting in each)
    found = {s.strategy.resident_bytes for s in settings if isinstance(s.strategy, BlockResidency)}
    return len(found - {None}) > 1


def _resident_bytes(plan: Plan) -> int | None:
    told = [setting.strategy.resident_bytes for setting in plan if isinstance(setting.strategy, BlockResidency)]
    return parse_size(told[0]) if len(told) == 1 and told[0] is not None else None


def _with_resident(plan: Plan, num_bytes: int) -> Plan:
    def resized(setting: Setting) -> Setting:
        strategy = setting.strategy
        if not isinstance(strategy, BlockResidency):
            return setting
        kept = dataclasses.replace(strategy, resident_bytes=format_size(num_bytes))
        return dataclasses.replace(setting, strategy=kept)

    return Plan(tuple(resized(setting) for setting in plan))
