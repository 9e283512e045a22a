"""Rows and columns as drawn cells: what every text renderer starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paretune.harness.report.columns import DEFAULT, Column, column
from paretune.harness.report.table import Row

__all__ = ["Grid", "grid"]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Titles and cells, all text; ``columns`` says how each is aligned."""

    columns: tuple[Column, ...]
    cells: tuple[tuple[str, ...], ...]


def grid(rows: Sequence[Row], columns: Sequence[str] = DEFAULT) -> Grid:
    """Draw the cells; columns in which nothing is known are left out, and the kind is shown when rows differ in it."""
    names = list(columns)
    if len({row.kind for row in rows}) > 1 and "kind" not in names:
        names.insert(names.index("plan") + 1 if "plan" in names else 0, "kind")
    wanted = [column(name) for name in names]
    kept = [c for c in wanted if c.name == "plan" or any(c.text(getattr(row, c.name)) not in ("-", "") for row in rows)]
    return Grid(columns=tuple(kept), cells=tuple(tuple(c.text(getattr(row, c.name)) for c in kept) for row in rows))
