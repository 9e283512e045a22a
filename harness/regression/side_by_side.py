"""Draw the plans of two sets of records next to each other: time, memory and copies, head over base."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paretune.harness.records import Record
from paretune.harness.regression.compare import by_identity
from paretune.harness.regression.identity import name_of
from paretune.harness.report.text import one_line
from paretune.harness.report.units import gib, ratio, seconds

__all__ = ["side_by_side"]

_TITLES = ("latency", "->", "time", "allocated GiB", "->", "memory", "copied GiB", "->", "kind", "plan")


def side_by_side(base: Sequence[Record], head: Sequence[Record]) -> str:
    """A table of the plans that both sides hold, as text. Times that were stored are shown; they prove nothing.

    ``kind`` says where the figures come from; no ratio is formed of two kinds.
    """
    before, after = by_identity(base, "the base"), by_identity(head, "the head")
    lines = [_TITLES, *(_cells(before[key], after[key]) for key in before if key in after)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(_TITLES) - 1)]
    drawn = ["  ".join([*(cell.rjust(w) for cell, w in zip(line, widths)), line[-1]]) for line in lines]
    alone = len(before.keys() ^ after.keys())
    rest = f"{alone} plans are on one side only.\n" if alone > 1 else "1 plan is on one side only.\n"
    return "".join(f"{one_line(line)}\n" for line in drawn if len(lines) > 1) + (rest if alone else "")


def _cells(before: Record, after: Record) -> tuple[str, ...]:
    return (
        *_pair(before, after, lambda r: r.median_latency_s, seconds, with_ratio=True),
        *_pair(before, after, lambda r: r.peak_allocated_bytes, gib, with_ratio=True),
        *_pair(before, after, lambda r: (r.transfers or {}).get("h2d_bytes"), gib, with_ratio=False),
        str(before.kind) if before.kind is after.kind else f"{before.kind} -> {after.kind}",
        name_of(before),
    )


def _pair(
    before: Record,
    after: Record,
    figure: Callable[[Record], float | None],
    draw: Callable[[float], str],
    *,
    with_ratio: bool,
) -> tuple[str, ...]:
    one, other = figure(before), figure(after)
    sides = ((one, before), (other, after))
    cells = [draw(value) if value is not None else record.outcome.value for value, record in sides]
    if with_ratio:
        is_alike = before.kind is after.kind
        cells.append(ratio(other / one) if is_alike and one and other is not None else "-")
    return tuple(cells)
