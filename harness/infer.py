"""Answer a plan without running it where another record proves that it cannot fit; such records are inferred."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paretune.harness import environment
from paretune.harness.records import Kind, Outcome, Record
from paretune.harness.search.features import counted
from paretune.strategies import Plan, Setting

if TYPE_CHECKING:
    from paretune.harness.question import Question

__all__ = ["infer"]


def infer(plan: str, question: Question, known: Sequence[Record]) -> Record | None:
    """An out-of-memory record for ``plan`` if one that needs less memory has already run out on this device.

    Needs less: the two plans differ in one counted parameter of one setting, and among the completed records of this
    study memory only ever grew (or only ever fell) with that parameter, at least twice.
    """
    wanted = Plan.parse(plan)
    for failed in known:
        if failed.outcome is not Outcome.OOM or failed.kind is Kind.INFERRED:
            continue
        step = _one_step(Plan.parse(failed.plan), wanted)
        if step is not None and _grows(step[0], known) == step[1]:
            return _inferred(plan, question, failed)
    return None


def _one_step(smaller: Plan, larger: Plan) -> tuple[str, int] | None:
    """The only parameter in which the plans differ and whether it rises (1) or falls (-1)."""
    if len(smaller) != len(larger):
        return None
    pairs = [(one, other) for one, other in zip(smaller, larger) if one != other]
    if len(pairs) != 1:
        return None
    return _changed(*pairs[0])


def _changed(one: Setting, other: Setting) -> tuple[str, int] | None:
    if one.component != other.component or one.strategy.name != other.strategy.name:
        return None
    before, after = one.strategy.parameters(), other.strategy.parameters()
    names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    if len(names) != 1:
        return None
    low, high = counted(before.get(names[0])), counted(after.get(names[0]))
    if low is None or high is None:
        return None
    return f"{one.component}:{one.strategy.name}.{names[0]}", 1 if high > low else -1


def _grows(parameter: str, known: Sequence[Record]) -> int:
    """1 if memory only grew with the parameter, -1 if it only fell, 0 if that is not established."""
    sized = [(Plan.parse(r.plan), r.peak_allocated_bytes) for r in known if r.is_complete and r.peak_allocated_bytes]
    signs = set()
    num_pairs = 0
    for index, (one, one_bytes) in enumerate(sized):
        for other, other_bytes in sized[index + 1 :]:
            step = _one_step(one, other)
            if step is None or step[0] != parameter or one_bytes is None or other_bytes is None:
                continue
            num_pairs += 1
            signs.add(step[1] if other_bytes > one_bytes else -step[1])
    return signs.pop() if num_pairs >= 2 and len(signs) == 1 else 0


def _inferred(plan: str, question: Question, failed: Record) -> Record:
    trial = question.trial(plan)
    return Record(
        key=trial.key(environment.versions()),
        kind=Kind.INFERRED,
        outcome=Outcome.OOM,
        reason=f"not run: {failed.plan} needs less and ran out of memory.",
        workload=failed.workload,
        device=trial.device,
        plan=plan,
        is_lossy=Plan.parse(plan).is_lossy,
        device_memory_bytes=failed.device_memory_bytes,
        oom=failed.oom,
        created=failed.created,
    )
