"""Where a finished trial exceeds the budget: one sentence per cap, none when it fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paretune.harness.records import Record
from paretune.harness.report.units import gib_text, seconds
from paretune.harness.spec import Budget
from paretune.strategies.sizes import parse_size

__all__ = ["budget_of", "overruns"]


def budget_of(budget: Budget | int | str | None) -> Budget:
    """A budget however it is given: whole, or only its device memory as bytes or text such as 12GiB.

    Raises ``SizeError`` for a size that cannot be read.
    """
    if isinstance(budget, Budget):
        return budget
    return Budget() if budget is None else Budget(device_memory=parse_size(budget, name="budget"))


def overruns(record: Record, budget: Budget) -> tuple[str, ...]:
    """What the record needs beyond the budget. A figure that is capped but not known counts as an overrun."""
    caps = [
        ("device memory", record.needed_bytes, budget.device_memory),
        ("host memory", record.peak_host_bytes, budget.host_memory),
        ("pinned memory", record.pinned_bytes, budget.pinned),
    ]
    found = [_size(name, value, cap) for name, value, cap in caps if cap is not None]
    return tuple(sentence for sentence in [*found, *_others(record, budget)] if sentence)


def _size(name: str, value: int | None, cap: int) -> str | None:
    if value is None:
        return f"{name} is not known, so it cannot be said to fit"
    return f"needs {gib_text(value - cap)} more {name} than the budget" if value > cap else None


def _others(record: Record, budget: Budget) -> Iterator[str]:
    latency_s, wanted_db = record.median_latency_s, budget.fidelity_db
    if budget.latency_s is not None and (latency_s is None or latency_s > budget.latency_s):
        took = "an unknown time" if latency_s is None else seconds(latency_s)
        yield f"takes {took}, the budget allows {seconds(budget.latency_s)}"
    if wanted_db is not None and record.is_lossy:
        seen = (record.fidelity or {}).get("psnr_db")
        known = "is not known" if seen is None else f"is {seen:.1f} dB"
        if not _is_close(record.fidelity or {}, wanted_db):
            yield f"fidelity {known}, the budget asks for {wanted_db:.1f} dB"


def _is_close(fidelity: Any, wanted_db: float) -> bool:
    seen = fidelity.get("psnr_db")
    return bool(fidelity.get("is_exact")) or (seen is not None and seen >= wanted_db)
