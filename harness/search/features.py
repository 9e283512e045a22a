"""Plans as rows of numbers: one column per strategy and parameter value, steps for parameters that are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paretune.strategies import Plan, Setting
from paretune.strategies.notation import format_value
from paretune.strategies.sizes import SizeError, parse_size

__all__ = ["Features", "Matrix", "counted", "features_of"]

Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Features:
    """``rows``: plans x columns, entries 0 or a column's weight. ``names``: what each column says, for explanations.

    A counted parameter with values v1 < v2 < v3 has the columns ``>= v2`` and ``>= v3``, so neighbouring values are
    neighbours, weighted such that the whole range weighs like one categorical parameter. What always comes together (a
    strategy and a parameter that never varies, text encoders that share their placement) is one column: it is one
    decision, and counting it several times would make it look like several.
    """

    rows: Matrix
    names: tuple[str, ...]


def features_of(plans: Sequence[Plan]) -> Features:
    """The features of these plans; the columns follow from the plans themselves, no strategy is known by name."""
    values = _counted_values(plans)
    columns: dict[str, int] = {}
    weights: list[float] = []
    entries: list[tuple[int, int]] = []
    for row, plan in enumerate(plans):
        for name, weight in _tokens(plan, values):
            if name not in columns:
                columns[name] = len(columns)
                weights.append(weight)
            entries.append((row, columns[name]))
    rows = np.zeros((len(plans), len(columns)))
    for row, column in entries:
        rows[row, column] = weights[column]
    kept = _distinct(rows)
    return Features(rows=rows[:, kept], names=tuple(np.array(list(columns), dtype=object)[kept]))


def _distinct(rows: Matrix) -> list[int]:
    """Of columns that stand in the same plans, the one with the most weight; in the order of the columns."""
    best: dict[bytes, int] = {}
    for column in range(rows.shape[1]):
        pattern = (rows[:, column] > 0).tobytes()
        other = best.setdefault(pattern, column)
        if rows[:, column].max() > rows[:, other].max():
            best[pattern] = column
    return sorted(best.values())


def _counted_values(plans: Sequence[Plan]) -> dict[str, list[float]]:
    seen: dict[str, set[float]] = {}
    for setting in {setting for plan in plans for setting in plan}:
        for name, value in setting.strategy.parameters().items():
            count = counted(value)
            if count is not None:
                seen.setdefault(f"{_owner(setting)}.{name}", set()).add(count)
    return {name: sorted(values) for name, values in seen.items()}


def _tokens(plan: Plan, values: dict[str, list[float]]) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for setting in plan:
        owner = _owner(setting)
        found.append((owner, 1.0))
        for name, value in setting.strategy.parameters().items():
            label = f"{owner}.{name}"
            count = counted(value)
            if count is not None:
                steps = values[label][1:]
                found += [(f"{label}>={step:.15g}", len(steps) ** -0.5) for step in steps if count >= step]
            else:
                found.append((f"{label}={format_value(value)}", 0.7))
    return found


def _owner(setting: Setting) -> str:
    return f"{setting.component or 'pipeline'}:{setting.strategy.name}"


def counted(value: object) -> float | None:
    """The number that a parameter counts (a size such as ``6GiB`` counts bytes), ``None`` for what has no order."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return float(parse_size(value)) if isinstance(value, str) else None
    except SizeError:
        return None
