"""Seconds of one call by stage, and how many of them the device waited for copies."""

from __future__ import annotations

from paretune.harness.records import RUN_PHASES_EXCLUDE
from paretune.harness.report.table import Row

__all__ = ["stages", "stalled_s"]


def stages(row: Row) -> dict[str, float]:
    """Seconds by stage; empty when the record has no durations."""
    phases = row.record.phases.items()
    return {n: p.duration_s for n, p in phases if n not in RUN_PHASES_EXCLUDE and p.duration_s is not None}


def stalled_s(row: Row) -> float:
    """Seconds stalled on copies, from the record's own figure or its share of the call; 0 where neither is known."""
    transfers = row.record.transfers or {}
    known = transfers.get("stall_s")
    if known is not None:
        return float(known)
    share = transfers.get("stall_share")
    return float(share) * sum(stages(row).values()) if share is not None else 0.0
