"""Lay one published number beside what was simulated: units first, then the relative error."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from paretune.harness.records import Record
from paretune.harness.validation.explained import explanation
from paretune.harness.validation.rows import PublishedRow

__all__ = ["RowResult", "compare", "failed"]

_SHARE_OF_CARD = re.compile(r"([\d.]+) ?% x")
"""A per cent of the card's memory. Rows below the size of a context show that none is in it."""
_DIGITS_OF_SEGMENTS = 5
"""Reserved bytes are whole segments of 2 MiB. The figures with more digits than this (encoding with SD1.5's autoencoder) are no
multiples of that for any size of card near the stated one, so they are allocated bytes; the others cannot tell."""


@dataclass(frozen=True, kw_only=True)
class RowResult:
    """One row after validation. `published` and `simulated` share a unit: bytes or seconds; `kind` says which figure.

    `reason` is set for rows that could not be expressed or run; `part` is "fit" or "held-out". `explained` says why
    the libraries of today differ from the published ones, where that is known.
    """

    id: str
    source: str
    family: str
    part: str
    model: str
    gpu: str
    strategy: str
    metric: str
    kind: str = ""
    published: float | None = None
    simulated: float | None = None
    reason: str | None = None
    is_card_known: bool = True
    case: str = ""
    unit: float = 1.0
    explained: str = ""

    @property
    def error(self) -> float | None:
        """Simulated over published, minus one."""
        if self.published is None or self.simulated is None:
            return None
        return self.simulated / self.published - 1.0

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--format json`, `published` and `simulated` in the unit of the table."""
        shown = {"published": self._as_written(self.published), "simulated": self._as_written(self.simulated)}
        return asdict(self) | shown | {"error": self.error}

    def _as_written(self, value: float | None) -> float | None:
        if value is None:
            return None
        return 1.0 / value if self.metric == "it_per_s" else value / self.unit


def compare(row: PublishedRow, record: Record, *, part: str, case: str, is_card_known: bool) -> RowResult:
    """The row beside the simulated record of its case."""
    kind, published, unit = _published(row)
    simulated = _simulated(row, kind, record)
    shared = _shared(row, part)
    if simulated is None:
        return RowResult(
            **shared,
            kind=kind,
            published=published,
            unit=unit,
            reason=f"simulated run ended with {record.outcome.value}",
        )
    return RowResult(
        **shared, kind=kind, published=published, simulated=simulated, unit=unit, is_card_known=is_card_known, case=case
    )


def failed(row: PublishedRow, reason: str, *, part: str) -> RowResult:
    """The row with the reason why nothing could be laid beside it."""
    return RowResult(**_shared(row, part), reason=reason)


def _shared(row: PublishedRow, part: str) -> dict[str, Any]:
    return {
        "id": row.id,
        "source": row.source,
        "family": row.family,
        "part": part,
        "model": row.model,
        "gpu": row.gpu,
        "strategy": row.strategy,
        "metric": row.metric,
        "explained": explanation(row),
    }


def _published(row: PublishedRow) -> tuple[str, float, float]:
    """Kind, value in seconds or bytes, and how many of those the table's unit is."""
    if row.metric == "it_per_s":
        return "time", 1.0 / row.value, 1.0
    if row.metric == "latency_s":
        unit = 1.0 / 5.0 if "5 forwards" in row.unit_note else 1.0
        return "time", row.value * unit, unit
    unit = 10**9 if "10^9" in row.unit_note or "/1000" in row.unit_note else 2**30
    return _kind_of_peak(row), row.value * unit, unit


def _kind_of_peak(row: PublishedRow) -> str:
    if row.metric == "peak_reserved_gb":
        return "reserved"
    if row.metric == "peak_allocated_gb":
        return "allocated"
    note = row.unit_note.lower()
    share = _SHARE_OF_CARD.search(note)
    if share is not None:
        return "allocated" if len(share[1]) > _DIGITS_OF_SEGMENTS else "reserved"
    return "used" if any(word in note for word in ("nvml", "nvidia-smi", "card total")) else "allocated"


def _simulated(row: PublishedRow, kind: str, record: Record) -> float | None:
    if not record.is_complete:
        return None
    if kind == "time":
        return _seconds(row, record)
    peaks = {
        "allocated": record.peak_allocated_bytes,
        "reserved": record.peak_reserved_bytes,
        "used": record.peak_used_bytes,
    }
    value = peaks[kind]
    return None if value is None else float(value)


def _seconds(row: PublishedRow, record: Record) -> float | None:
    is_per_step = row.metric == "it_per_s" or "per iteration" in row.unit_note
    if (is_per_step or "denoising loop" in row.unit_note) and "denoise" in record.phases:
        loop = record.phases["denoise"].duration_s
        steps = len(record.step_latency_s) or 1
        return loop / steps if is_per_step and loop is not None else loop
    return record.median_latency_s
