"""What one call of a module left behind on the simulated machine, and whether two calls did the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paretune.harness.simulator.memory_timeline import by_kind

if TYPE_CHECKING:
    from paretune.harness.simulator.ledger import Ledger
    from paretune.harness.simulator.machine import Machine
    from paretune.harness.simulator.traffic import Traffic

__all__ = ["LEFTOVER_BYTES", "Marks", "advance", "alike", "clocks_of", "resumes"]

TOLERANCE = 2e-3
"""Two calls are alike when their clocks advanced alike within this share."""
LEFTOVER_BYTES = 1 << 20
"""So much may stay allocated beyond the outputs, if it was gone again before the next call: late releases of small groups.
More may, if it is gone before anything else happens: whoever wraps the call tidies up behind it."""


@dataclass(slots=True)
class Marks:
    """What one call did: clocks before and after, bytes, operators and copies."""

    clocks_before: list[float]
    clocks_after: list[float]
    peaks: list[int]
    raised: list[dict[str, int]]
    reserved_before: list[int]
    reserved: list[int]
    entry_bytes: list[int]
    entry_kinds: list[dict[str, int]]
    kept_bytes: list[int]
    num_operators: int
    operators: Counter[object]
    num_allocations: list[int]
    traffic: Traffic
    outputs: Any
    output_bytes: int
    leftover_bytes: int
    was_tidied: bool = False

    def was_entered_with(self, ledgers: list[Ledger]) -> bool:
        """Whether the same weights are in place now, and as much alive; an unsplit block's rest may come and go."""
        for ledger, alive, kinds in zip(ledgers, self.entry_bytes, self.entry_kinds, strict=True):
            now = by_kind(ledger.by_label)
            if any(now.get(kind, 0) != kinds.get(kind, 0) for kind in ("weight", "buffer")):
                return False
            if abs(ledger.now_bytes - alive) > LEFTOVER_BYTES:
                return False
        return True

    @property
    def is_repeatable(self) -> bool:
        """Whether the call left nothing behind but outputs that can be made again."""
        return self.outputs is not None and 0 <= self.leftover_bytes <= LEFTOVER_BYTES


def clocks_of(machine: Machine) -> list[float]:
    """The host's clock and those of every card's engines and streams, in seconds."""
    clocks = [machine.host_s]
    for card in machine.cards:
        clocks += [card.compute_free_s, card.h2d_free_s, card.d2h_free_s]
        clocks += [stream.ready_s for stream in card.streams]
    return clocks


def advance(machine: Machine, marks: Marks) -> None:
    """Move every clock as far as the recorded call moved it, counted from when it and the host were both ready."""
    host_now, host_then = machine.host_s, marks.clocks_before[0]
    moved = [
        now if after == before else max(now, host_now) + (after - max(before, host_then))
        for now, before, after in zip(clocks_of(machine), marks.clocks_before, marks.clocks_after, strict=True)
    ]
    values = iter(moved)
    machine.host_s = next(values)
    for card in machine.cards:
        computed_s = card.compute_free_s
        card.compute_free_s, card.h2d_free_s, card.d2h_free_s = next(values), next(values), next(values)
        card.shift_launched(card.compute_free_s - computed_s)
        for stream in card.streams:
            stream.ready_s = next(values)


def alike(left: Marks, right: Marks) -> bool:
    """Whether two calls in a row did the same, and left nothing that would make a third one differ."""
    if (right.leftover_bytes or right.was_tidied) and left.entry_bytes != right.entry_bytes:
        return False
    return (left.peaks, left.reserved) == (right.peaks, right.reserved) and _did_the_same(left, right)


def resumes(repeated: Marks, now: Marks) -> bool:
    """Whether a call has come back to what was repeated before something else ran in between.

    The allocator's cache may be another one since then, and with it which block a request gets; the call that is there now
    tells its own peaks, as long as it took nothing more from the driver.
    """
    if now.reserved_before != now.reserved:
        return False
    if (repeated.was_tidied, repeated.leftover_bytes) != (now.was_tidied, now.leftover_bytes):
        return False
    return _did_the_same(repeated, now)


def _did_the_same(left: Marks, right: Marks) -> bool:
    """Whether both can be repeated, and did as much in as much time on every clock."""
    if not (left.is_repeatable and right.is_repeatable) or len(left.clocks_after) != len(right.clocks_after):
        return False
    if _counts(left) != _counts(right):
        return False
    spans = [
        [after - before for before, after in zip(marks.clocks_before, marks.clocks_after, strict=True)]
        for marks in (left, right)
    ]
    longest = max(max(span) for span in spans)
    return all(abs(a - b) <= TOLERANCE * longest for a, b in zip(*spans, strict=True))


def _counts(marks: Marks) -> tuple[Any, ...]:
    return (marks.num_operators, marks.num_allocations, marks.kept_bytes, marks.traffic.copied())
