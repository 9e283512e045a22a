"""The fastest plan for each memory size, read from one table's records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paretune.harness.records import Record
from paretune.harness.report.table import Row, rows
from paretune.harness.report.units import GIB_BYTES
from paretune.harness.spec import LADDER, Budget
from paretune.strategies.sizes import parse_size

__all__ = ["Rung", "rungs"]


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A memory size and the fastest plan that fits it; ``row`` is ``None`` when nothing does."""

    device_memory_bytes: int
    row: Row | None

    @property
    def memory_gib(self) -> float:
        return self.device_memory_bytes / GIB_BYTES


def rungs(
    records: Iterable[Record], sizes: Sequence[str | int] = LADDER, *, is_lossy_allowed: bool = False
) -> list[Rung]:
    """One rung per size; raises ``MixedRecords`` as ``rows`` does, and ``SizeError``."""
    listed = list(records)
    return [_rung(listed, parse_size(size), is_lossy_allowed) for size in sizes]


def _rung(records: Sequence[Record], size_bytes: int, is_lossy_allowed: bool) -> Rung:
    made = rows(records, budget=Budget(device_memory=size_bytes))
    fitting = [r for r in made if r.is_feasible and r.latency_s is not None and (is_lossy_allowed or not r.is_lossy)]
    best = min(fitting, key=lambda row: (row.latency_s or 0.0, row.needed_bytes or 0), default=None)
    return Rung(device_memory_bytes=size_bytes, row=best)
