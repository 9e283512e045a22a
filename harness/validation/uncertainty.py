"""How far predictions may be off, learnt from the validation rows by kind of figure and of strategy."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from paretune.harness.simulator.sheets import sheets_folder
from paretune.harness.validation.compare import RowResult

__all__ = ["learn", "relative_uncertainty", "strategy_kind", "uncertainty_file"]

MIN_ROWS = 5
"""A kind of strategy with fewer rows takes the figure of all rows together."""
COVERAGE = 0.9
PAGEABLE_LATENCY = 0.6
"""Pageable copies run at the host's rate, and published machines imply from 2 to 16 GB/s: wide until a host is calibrated."""
_METRICS = {
    "allocated": "peak_allocated_bytes",
    "reserved": "peak_reserved_bytes",
    "used": "peak_used_bytes",
    "time": "latency_s",
}


def uncertainty_file() -> Path:
    """Where the learnt figures are kept."""
    return sheets_folder() / "uncertainty.json"


def learn(rows: Iterable[RowResult]) -> dict[str, dict[str, float]]:
    """For every metric and kind of strategy, the relative error that nine of ten rows stay under.

    Rows that other versions of a library explain say nothing about predictions and are left out.
    """
    errors: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.error is None or row.explained or (row.kind == "time" and not row.is_card_known):
            continue
        for kind in ("all", strategy_kind(row.strategy)):
            errors.setdefault((_METRICS[row.kind], kind), []).append(abs(row.error))
    learnt: dict[str, dict[str, float]] = {}
    for (metric, kind), found in sorted(errors.items()):
        if kind == "all" or len(found) >= MIN_ROWS:
            learnt.setdefault(metric, {})[kind] = round(
                sorted(found)[min(len(found) - 1, int(COVERAGE * len(found)))], 4
            )
    return learnt


def strategy_kind(text: str) -> str:
    """What decides how well a plan can be predicted: where weights come from, before anything else.

    `text` is a plan in this program's notation or a published row's configuration.
    """
    words = text.lower()
    if "stream" in words and ("group" in words or "residency" in words) and "use_stream=false" not in words:
        return "streamed"
    if any(word in words for word in ("offload", "residency", "disk", "device_map")):
        return "pageable"
    return "compiled" if "compile" in words else "resident"


def relative_uncertainty(kind: str) -> dict[str, float]:
    """Relative uncertainty by metric for one kind of strategy; empty when nothing was learnt."""
    found = {metric: kinds.get(kind, kinds["all"]) for metric, kinds in _learnt().items()}
    if kind == "pageable" and "latency_s" in found:
        found["latency_s"] = max(found["latency_s"], PAGEABLE_LATENCY)
    return found


@cache
def _learnt() -> dict[str, dict[str, float]]:
    file = uncertainty_file()
    loaded: dict[str, dict[str, float]] = json.loads(file.read_text()) if file.is_file() else {}
    return loaded or {}
