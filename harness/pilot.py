"""A short call before the full measurement: a plan that does not fit or is clearly too slow is stopped after two steps.

The same process loads, applies the plan and makes two calls of a few steps with their decode, the second one timed. Steps
of one size repeat, so a full call follows from it; peaks of encoding and decoding are exact after one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paretune.harness.constraints import is_feasible
from paretune.harness.records import Outcome, Record
from paretune.harness.spec import Budget
from paretune.strategies.sizes import format_gib

__all__ = ["OPTION", "PILOT", "Bar", "Pilot", "Stopped", "predicted_latency_s"]

OPTION = "pilot"
"""Key of a trial's options that holds the pilot's values; it does not belong to the identity of what is measured."""

PILOT = "pilot"
"""Value of the option ``purpose`` of a record that ended with the pilot; it answers no question about a full call."""

_NUM_STEPS = 2
_SLACK = 1.15
_WORTH_IT = 4
"""A call must have this many times the pilot's steps; below, the pilot would cost what it saves."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What a plan must beat in one memory size: ``latency_s`` of the fastest so far (``None``: nothing fits yet)."""

    memory_bytes: int | None
    latency_s: float | None


class Stopped(Exception):
    """The pilot has shown enough; the text says what. ``told``: the figures for the record."""

    def __init__(self, reason: str, told: Mapping[str, Any]) -> None:
        super().__init__(reason)
        self.told = told


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """When to stop a trial: when no bar's memory holds it, or when it is ``slack`` times slower than each that does."""

    bars: tuple[Bar, ...]
    num_steps: int = _NUM_STEPS
    slack: float = _SLACK

    @classmethod
    def against(cls, records: Iterable[Record], caps: Sequence[int], budget: Budget, *, allow_lossy: bool) -> Pilot:
        """The pilot for the next trial of a study with these records, which must answer these memory sizes."""
        usable = [r for r in records if r.is_complete and (allow_lossy or not r.is_lossy)]
        bars = []
        sizes: Sequence[int | None] = caps or (None,)
        for cap in sizes:
            allowed = budget.model_copy(update={"device_memory": cap})
            known = [r.median_latency_s for r in usable if is_feasible(r, allowed) and r.median_latency_s]
            bars.append(Bar(memory_bytes=cap, latency_s=min(known, default=None)))
        return cls(bars=tuple(bars))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Pilot | None:
        """The pilot that a trial's options ask for."""
        told = options.get(OPTION)
        return None if told is None else cls(**{**told, "bars": tuple(Bar(**bar) for bar in told["bars"])})

    def options(self) -> dict[str, Any]:
        """Trial options that ask for it."""
        return {OPTION: asdict(self)}

    def is_worth_it(self, num_steps: int) -> bool:
        """Whether a call has enough steps for a shorter one to save anything."""
        return num_steps >= _WORTH_IT * self.num_steps

    def judge(self, call_s: float, steps_s: Sequence[float], num_steps: int, need_bytes: int | None) -> dict[str, Any]:
        """The figures for the record: the pilot's steps, the predicted full call, the memory it needs.

        call_s: the timed short call. steps_s: its steps, empty where the device cannot time them. num_steps: of a full
        call. Raises ``Stopped``. The prediction takes the fastest step for all that are left: a step that was disturbed
        stops no plan. Schedulers that call the model more often than they are asked do so in both calls alike.
        """
        predicted = call_s + (num_steps - self.num_steps) * min(steps_s) if steps_s else None
        told = {
            "num_steps": self.num_steps,
            "of": num_steps,
            "predicted_latency_s": predicted,
            "need_bytes": need_bytes,
        }
        holding = [b for b in self.bars if b.memory_bytes is None or need_bytes is None or need_bytes <= b.memory_bytes]
        began = f"stopped after {self.num_steps} of {num_steps} steps"
        if not holding and need_bytes is not None:
            largest = max(bar.memory_bytes or 0 for bar in self.bars)
            raise Stopped(f"{began}: needs {format_gib(need_bytes)}, more than {format_gib(largest)}.", told)
        limits = [bar.latency_s for bar in holding]
        if predicted is not None and all(limit is not None and predicted > self.slack * limit for limit in limits):
            slowest = max(limit for limit in limits if limit is not None)
            raise Stopped(
                f"{began}: at least {predicted:.3g} s a call predicted, {predicted / slowest:.2f}x the fastest known.",
                told,
            )
        return told


def predicted_latency_s(record: Record) -> float | None:
    """Seconds that the pilot predicted for a full call of a trial it stopped; ``None`` for any other record."""
    if record.outcome is not Outcome.STOPPED:
        return None
    value = record.facts.get(OPTION, {}).get("predicted_latency_s")
    return None if value is None else float(value)
