"""Read a table of published measurements: one row a number, with its source."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["COLUMNS", "PublishedRow", "read_rows"]

COLUMNS = (
    "id", "source", "source_ref", "model", "pipeline", "gpu", "dtype", "resolution_or_frames", "batch", "steps", "config",
    "metric", "value", "unit_note", "notes",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One published number; `config` maps a technique to what was set, and leaves out what was not used."""

    id: str
    source: str
    model: str
    pipeline: str
    gpu: str
    dtype: str
    size: str
    batch: str
    steps: str
    config: Mapping[str, str]
    metric: str
    value: float
    unit_note: str
    notes: str

    @property
    def family(self) -> str:
        """The part of the id before the number: rows of one family were collected from one kind of source."""
        return self.id.rpartition("-")[0] or self.id

    @property
    def strategy(self) -> str:
        """What was applied, in a few words; `resident` for nothing."""
        kept = {key: text for key, text in self.config.items() if key not in ("note", "torch", "attention")}
        return ";".join(f"{key}={text}" for key, text in kept.items()) or "resident"


def read_rows(path: Path) -> tuple[list[PublishedRow], list[tuple[str, str]]]:
    """All rows that can be read, and for every other one its id and why; raises `ValueError` for a file without the columns."""
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(
                f"{path}: no column {', '.join(missing)}. A table of published measurements has {', '.join(COLUMNS)}."
            )
        rows, refused = [], []
        for number, fields in enumerate(reader, start=2):
            try:
                rows.append(_row(fields))
            except ValueError as error:
                refused.append((fields.get("id") or f"line {number}", str(error)))
    return rows, refused


def _row(fields: Mapping[str, str]) -> PublishedRow:
    try:
        value = float(fields["value"])
    except (TypeError, ValueError):
        raise ValueError(f"value {fields.get('value')!r} is not a number") from None
    if not 0 < value < float("inf"):
        raise ValueError(f"value {value} is not positive")
    return PublishedRow(
        id=fields["id"],
        source=fields["source"],
        model=fields["model"],
        pipeline=fields["pipeline"] or "",
        gpu=fields["gpu"],
        dtype=fields["dtype"],
        size=fields["resolution_or_frames"],
        batch=fields["batch"],
        steps=fields["steps"],
        config=_config(fields["config"]),
        metric=fields["metric"],
        value=value,
        unit_note=fields["unit_note"] or "",
        notes=fields["notes"] or "",
    )


def _config(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(";") if part)
    return {key.strip(): value.strip() for key, _, value in pairs if value.strip() not in ("none", "default", "")}
