"""Every column a table can have: name, title with unit, what it shows, how it is rounded. One place decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paretune.harness.report.units import gib, percent, ratio, seconds

__all__ = ["COLUMNS", "DEFAULT", "Column", "column"]

_MOST_REASON = 160
"""Characters of a reason that a drawn table shows; exports carry all of it."""

_MOST_PLAN = 320
"""Characters of a plan that a drawn table shows: all but those that list layers one by one. Exports carry all of it."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: the field of a row it shows, its title, and how a value is drawn. ``is_number`` aligns it right."""

    name: str
    title: str
    draw: Callable[[Any], str]
    is_number: bool = True
    help: str = ""

    def text(self, value: Any) -> str:
        """The value as drawn; unknown is a dash, never a zero."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "-"
        return self.draw(value)


def _yes(value: bool) -> str:
    return "*" if value else ""


def _short(value: str, most: int = _MOST_REASON) -> str:
    line = " ".join(value.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _plan(value: str) -> str:
    return value if len(value) <= _MOST_PLAN else _short(value, _MOST_PLAN)


def _decibel(value: float) -> str:
    return "exact" if math.isinf(value) else f"{value:.1f} dB"


def _column(name: str, title: str, draw: Callable[[Any], str], text: str, *, is_number: bool = True) -> Column:
    return Column(name=name, title=title, draw=draw, help=text, is_number=is_number)


COLUMNS = (
    _column("plan", "plan", _plan, "settings in the order they are applied", is_number=False),
    _column("is_on_front", "front", _yes, "no feasible plan is both faster and smaller", is_number=False),
    _column("outcome", "outcome", str, "how the trial ended", is_number=False),
    _column("kind", "kind", str, "where the figures come from", is_number=False),
    _column("latency_s", "latency", seconds, "median of whole calls"),
    _column("spread", "+-", percent, "scaled median absolute deviation of the calls over their median"),
    _column("relative_latency", "time", ratio, "latency over that of the reference plan"),
    _column("needed_bytes", "needed GiB", gib, "device memory that must be there: allocator, context, margin"),
    _column("peak_allocated_bytes", "allocated GiB", gib, "peak of live tensors on the device"),
    _column("peak_reserved_bytes", "reserved GiB", gib, "peak the allocator took from the driver"),
    _column("peak_used_bytes", "used GiB", gib, "peak the driver saw of the process"),
    _column("relative_memory", "memory", ratio, "peak allocated over that of the reference plan"),
    _column("saved_bytes", "saved GiB", gib, "peak allocated of the reference plan less this one"),
    _column("peak_host_bytes", "host GiB", gib, "peak host memory of the process, loading included"),
    _column("pinned_bytes", "pinned GiB", gib, "page-locked host memory, loading included"),
    _column("copied_bytes", "copied GiB", gib, "bytes over the link in one call, both directions"),
    _column("stall_share", "stalled", percent, "share of the call the device waited for copies"),
    _column("first_call_s", "first call", seconds, "first, untimed call"),
    _column("compile_s", "compile", seconds, "time spent compiling, not in latency"),
    _column("fidelity", "fidelity", _decibel, "closeness to the reference output (PSNR)"),
    _column("is_lossy", "lossy", _yes, "may change the output", is_number=False),
    _column("device_memory_bytes", "cap GiB", gib, "device memory it was allowed while it ran"),
    _column("margin_bytes", "spare GiB", gib, "budget less needed"),
    _column("reason", "reason", _short, "why it did not complete, or does not fit", is_number=False),
)
"""All columns in drawing order."""

DEFAULT = (
    "plan",
    "is_on_front",
    "outcome",
    "latency_s",
    "relative_latency",
    "needed_bytes",
    "peak_allocated_bytes",
    "saved_bytes",
    "peak_host_bytes",
    "stall_share",
    "fidelity",
    "reason",
)
"""Names of the columns a terminal shows; exports carry all."""


def column(name: str) -> Column:
    """The column called ``name``. Raises ``KeyError`` that lists the names there are."""
    for candidate in COLUMNS:
        if candidate.name == name:
            return candidate
    raise KeyError(f"no column {name!r}. There are: {', '.join(c.name for c in COLUMNS)}")
