"""One sentence why a trial did not complete, with the sizes that are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paretune.harness.records import Outcome, Record
from paretune.harness.report.units import gib_text

__all__ = ["reason_of"]


def reason_of(record: Record) -> str | None:
    """The sentence, ``None`` for a trial that completed."""
    if record.outcome is Outcome.OOM:
        return _out_of_memory(record.oom or {}, record.reason)
    return None if record.is_complete else record.reason or record.outcome.value


def _out_of_memory(oom: Mapping[str, Any], said: str | None) -> str:
    known = [_part(oom, "allocated_bytes", "{} allocated"), _part(oom, "requested_bytes", "{} more asked for")]
    known.append(_part(oom, "limit_bytes", "limit {}"))
    sizes = ", ".join(part for part in known if part)
    if not sizes:
        return said or "out of device memory"
    where = f" at {oom['phase']}" if oom.get("phase") else ""
    return f"out of device memory{where}: {sizes}"


def _part(oom: Mapping[str, Any], name: str, sentence: str) -> str:
    value = oom.get(name)
    return sentence.format(gib_text(value)) if isinstance(value, int | float) else ""
