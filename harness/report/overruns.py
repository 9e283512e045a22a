"""Where a finished trial exceeds the budget: one sentence per cap, none when it fits."""

from __future__ import annotations

from paretune.harness.constraints import need_of, violations
from paretune.harness.records import Peaks, Record
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
    """A sentence for every constraint of the budget that a completed record breaks."""
    broken = [name for name, value in violations(record, budget).items() if value > 0]
    return tuple(_sentence(name, record, budget) for name in broken)


def _sentence(name: str, record: Record, budget: Budget) -> str:
    need = need_of(record)
    host_bytes = Peaks.over([record, *record.phases.values()]).peak_host_bytes
    if name == "device_memory":
        return _size("device memory", need.total_bytes if need else None, budget.device_memory)
    if name == "host_memory":
        return _size("host memory", host_bytes, budget.host_memory)
    if name == "pinned":
        return _size("pinned memory", record.pinned_bytes, budget.pinned)
    if name == "latency":
        took = record.median_latency_s
        allowed = seconds(budget.latency_s or 0.0)
        return f"takes {'an unknown time' if took is None else seconds(took)}, the budget allows {allowed}"
    seen = (record.fidelity or {}).get("psnr_db")
    known = "is not known" if seen is None else f"is {seen:.1f} dB"
    return f"fidelity {known}, the budget asks for {budget.fidelity_db:.1f} dB"


def _size(name: str, value: int | None, cap: int | None) -> str:
    if value is None or cap is None:
        return f"{name} is not known, so it cannot be said to fit"
    return f"needs {gib_text(value - cap)} more {name} than the budget"
