"""Draw the peak of every phase for every plan: which phase a saving must reach to count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paretune.harness.report.plots.style import COLOURS, blank, legend_of_plans, numbered, part_of, titled
from paretune.harness.report.table import Row
from paretune.harness.report.units import GIB_BYTES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["phases_plot"]

_GROUP_WIDTH = 0.8


def phases_plot(rows: Sequence[Row], *, budgets_bytes: Sequence[int] = (), max_plans: int = 12) -> Figure:
    """Peak allocated bytes by phase, grouped by plan, for the first ``max_plans`` rows that have phases.

    Raises ``ValueError`` when none has.
    """
    known = [row for row in rows if row.record.phases]
    drawn = numbered(known[:max_plans])
    if not drawn:
        raise ValueError("no record has peaks per phase, so there is nothing to plot")
    names = list(dict.fromkeys(name for _, row in drawn for name in row.record.phases))
    figure, axes = blank(4.5 + 0.14 * len(drawn))
    width = _GROUP_WIDTH / len(names)
    for index, name in enumerate(names):
        places = [number + (index - (len(names) - 1) / 2) * width for number, _ in drawn]
        sizes = [_peak_gib(row, name) for _, row in drawn]
        axes.bar(places, sizes, width=width * 0.92, color=COLOURS[index % len(COLOURS)], label=name)
    for budget_bytes in budgets_bytes:
        _draw_budget(axes, budget_bytes / GIB_BYTES)
    axes.set_xticks([number for number, _ in drawn])
    axes.set_ylabel("peak allocated, GiB (2^30 bytes)")
    axes.legend(fontsize=7, frameon=False, ncols=len(names))
    titled(figure, rows, "Peak device memory by phase" + part_of(len(drawn), len(known), "plans"))
    legend_of_plans(figure, drawn)
    return figure


def _draw_budget(axes: Axes, size_gib: float) -> None:
    axes.axhline(size_gib, color="#666666", linestyle="--", linewidth=0.8)
    place, units = (1, size_gib), ("axes fraction", "data")
    axes.annotate(f"budget {size_gib:g} GiB", place, xycoords=units, fontsize=7, ha="right", va="bottom")


def _peak_gib(row: Row, name: str) -> float:
    phase = row.record.phases.get(name)
    return (phase.peak_allocated_bytes or 0) / GIB_BYTES if phase else 0.0
