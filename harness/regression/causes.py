"""Name what brought a change about: operators whose counts moved, who reached the peak, what engaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paretune.harness.records import Record
from paretune.harness.regression.metrics import details

__all__ = ["causes"]

_MOST = 4
_REACHED = ("operator", "module")


def causes(baseline: Record, head: Record, metric: str) -> tuple[str, ...]:
    """At most four sentences, the most telling first; none when the records hold no detail or nothing moved.

    For a peak: the operator and module that reached it (of the same phase), then what is alive then; for everything
    else the operators whose counts moved.
    """
    before, after = details(baseline), details(head)
    moved = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    ranked = sorted(moved, key=lambda name: (_rank(name, metric), -_distance(before, after, name), name))
    told = [_sentence(before, after, name) for name in ranked[:_MOST] if _rank(name, metric) < _UNRELATED]
    return tuple([*_as_before(before, after, metric), *told][:_MOST])


def _as_before(before: Mapping[str, Any], after: Mapping[str, Any], metric: str) -> list[str]:
    """Who reached a peak, when it is the same operator and module on both sides."""
    reached = [name for name in after if name.rpartition(".")[2] in _REACHED and _rank(name, metric) == 0]
    if not reached or any(before.get(name) != after[name] or not after[name] for name in reached):
        return []
    words = {name.rpartition(".")[2]: after[name] for name in reached}
    return [f"peak reached by {words.get('operator')} in {words.get('module')}, as before"]


_UNRELATED = 5


def _rank(name: str, metric: str) -> int:
    is_peak = "peak" in metric or metric.endswith("pinned_bytes")
    if "explain." in name or "peak." in name:
        return _rank_of_peak(name, metric) if is_peak else _UNRELATED
    if name.startswith("operators."):
        return 2
    return 3 if name.startswith("engaged.") else 4


def _rank_of_peak(name: str, metric: str) -> int:
    phase = metric.split(".")[1] if metric.startswith("phases.") else ""
    is_same = f".phases.{phase}." in name if phase else ".phases." not in name
    if not is_same or name.endswith("total_bytes"):
        return _UNRELATED
    return 0 if name.rpartition(".")[2] in _REACHED else 1


def _distance(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float:
    one, other = before.get(name, 0), after.get(name, 0)
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return abs(other - one) if numbers else 0.0


def _sentence(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> str:
    default = 0 if name.startswith("operators.") or ".alive." in name else "absent"
    label = name.rpartition("alive.")[2] if ".alive." in name else _label(name)
    old, new = before.get(name, default), after.get(name, default)
    if name.rpartition(".")[2] in _REACHED:  # weights that arrive reach a peak between operators, outside of any module
        old, new = old or "none", new or "none"
    if ".alive." in name:
        return f"alive at the peak, {label}: {new - old:+,} bytes"
    return f"{label} {_short(old)} -> {_short(new)}"


def _label(name: str) -> str:
    if name.startswith("operators."):
        return name.removeprefix("operators.")
    last = name.rpartition(".")[2]
    return f"peak reached by {last}" if last in _REACHED else name


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
