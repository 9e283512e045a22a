"""Name what brought a change about: operators whose counts moved, who reached the peak, what engaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paretune.harness.records import Record
from paretune.harness.regression.metrics import details

__all__ = ["causes"]

_MOST = 4
_PEAK_WORDS = ("peak", "alive")


def causes(baseline: Record, head: Record, metric: str) -> tuple[str, ...]:
    """At most four sentences, the most telling first; none when the records hold no detail or nothing moved.

    For sizes who reached the peak comes first, for everything else the operators.
    """
    before, after = details(baseline), details(head)
    moved = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    is_size = "peak" in metric or metric.endswith("pinned_bytes")
    ranked = sorted(moved, key=lambda name: (_rank(name, is_size), -_distance(before, after, name), name))
    return tuple(_sentence(before, after, name) for name in ranked[:_MOST])


def _rank(name: str, is_size: bool) -> int:
    if any(word in name for word in _PEAK_WORDS):
        return 0 if is_size else 2
    if name.startswith("operators."):
        return 1
    return 3 if name.startswith("engaged.") else 2


def _distance(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float:
    one, other = before.get(name, 0), after.get(name, 0)
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return abs(other - one) if numbers else 0.0


def _sentence(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> str:
    default = 0 if name.startswith("operators.") else "absent"
    label = name.removeprefix("operators.")
    return f"{label} {_short(before.get(name, default))} -> {_short(after.get(name, default))}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
