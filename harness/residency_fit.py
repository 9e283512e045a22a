"""Let as many blocks stay as fit: what the recommended plan leaves free of the cap becomes resident, then it runs again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from paretune.harness.constraints import need_against
from paretune.harness.question import Question
from paretune.harness.records import Record
from paretune.harness.refining import best_of, changed, choices, value_in
from paretune.strategies import BlockResidency, Plan
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
    if cap_bytes is None or len(choices(question, BlockResidency, "resident_bytes") - {None}) < 2:
        return
    best = best_of(question, records)
    if best is None:
        return
    plan, need, high = Plan.parse(best.plan), need_against(best, cap_bytes), None
    told = value_in(plan, BlockResidency, "resident_bytes")
    if told is None:
        return
    low = parse_size(told)
    for _ in range(_MAX_RUNS):
        wanted = _next(low, high, cap_bytes - need)
        if wanted is None:
            return
        text = str(changed(plan, BlockResidency, resident_bytes=format_size(wanted)))
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
