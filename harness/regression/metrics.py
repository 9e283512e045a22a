"""The figures of a record that a gate watches, by name, with how each is compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.harness.records import RUN_PHASES_EXCLUDE, Kind, Peaks, Record

__all__ = ["CONDITIONS", "Metric", "details", "figures", "metric_of"]

_MEASURED_TOLERANCE = 0.01
_SIMULATED_TIME_TOLERANCE = 0.01
_LOOSE_TOLERANCE = 0.05

CONDITIONS = frozenset(
    {
        "foreign_processes",
        "throttled",
        "sm_clock_mhz",
        "temperature_c",
        "power_mw",
        "swapped_pages",
        "killed_processes",
        "num_replayed_calls",
    }
)
"""Counters that tell how the machine was, or what the simulator spared itself, not what the plan did; never compared."""

_PEAKS = tuple(field.name for field in dataclasses.fields(Peaks))
_NOISY_WHEN_MEASURED = ("peak_used_bytes", "peak_host_bytes", "pinned_bytes")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """How a figure is compared.

    tolerance: relative change that is no change. is_gating: whether a change for the worse blocks.
    may_be_zero: whether zero is a figure; where it is not, a zero baseline means that nothing was measured.
    is_ordered: less is better; otherwise any change is for the worse.
    """

    name: str
    tolerance: float = 0.0
    is_gating: bool = True
    may_be_zero: bool = False
    is_ordered: bool = True


def figures(record: Record) -> dict[str, float | str]:
    """Every watched figure of a complete record: peaks, peaks by phase, copies, counters, simulated time."""
    found: dict[str, float | str] = dict(_peaks("", record))
    for phase, peaks in record.phases.items():
        found |= _peaks(f"phases.{phase}.", peaks)
    found |= {f"transfers.{name}": value for name, value in (record.transfers or {}).items() if _is_number(value)}
    for name, value in record.counters.items():
        if name not in CONDITIONS and (_is_number(value) or name.endswith("_hash")):
            found[f"counters.{name}"] = value
    operators = record.counters.get("operators")
    if isinstance(operators, Mapping):
        found.setdefault("counters.num_operators", sum(operators.values()))
    if record.kind is Kind.SIMULATED and record.median_latency_s is not None:
        found["latency_s"] = record.median_latency_s
    return found


def details(record: Record) -> dict[str, Any]:
    """What explains figures: counts by operator, who reached the peak, what engaged; flat, by dotted name."""
    compared = figures(record)
    drawn = ("memory_timeline",)
    nested = {n: value for n, value in record.counters.items() if f"counters.{n}" not in compared and n not in drawn}
    return {**_flat(nested), **_flat({"engaged": dict(record.facts)})}


def metric_of(name: str, kind: Kind) -> Metric:
    """How the figure ``name`` of a record of this kind is compared."""
    family, last, is_exact = name.partition(".")[0], name.rpartition(".")[2], kind is Kind.SIMULATED
    if name == "latency_s":
        return Metric(name=name, tolerance=_SIMULATED_TIME_TOLERANCE)
    if family in ("counters", "transfers"):
        return _counted(name, last)
    is_before = name.split(".")[1:2] != [] and name.split(".")[1] in RUN_PHASES_EXCLUDE
    is_loose = not is_exact and (last in _NOISY_WHEN_MEASURED or is_before)
    tolerance = 0.0 if is_exact else _LOOSE_TOLERANCE if is_loose else _MEASURED_TOLERANCE
    may_be_zero = last == "pinned_bytes" or is_before or (is_exact and last == "peak_host_bytes")
    return Metric(name=name, tolerance=tolerance, is_gating=not is_loose, may_be_zero=may_be_zero)


def _counted(name: str, last: str) -> Metric:
    if last.endswith("_hash"):
        return Metric(name=name, is_ordered=False)
    if last.endswith(("_s", "_share")):
        return Metric(name=name, tolerance=_LOOSE_TOLERANCE, is_gating=False, may_be_zero=True)
    return Metric(name=name, may_be_zero=True)


def _peaks(prefix: str, peaks: Peaks) -> dict[str, float | str]:
    known = ((name, getattr(peaks, name)) for name in _PEAKS)
    return {f"{prefix}{name}": value for name, value in known if value is not None}


def _sized(item: Mapping[str, Any], prefix: str) -> tuple[str, Any]:
    """An entry of a list such as ``{"component": "vae", "kind": "weight", "bytes": 5}`` by what it is about."""
    texts = [str(value) for value in item.values() if isinstance(value, str)]
    return f"{prefix}{' '.join(text for text in texts if text) or 'other'}", item.get("bytes")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
            found |= dict(_sized(item, f"{prefix}{key}.") for item in value)
        else:
            found[f"{prefix}{key}"] = value
    return found
