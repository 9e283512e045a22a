"""Draw where the time of a call goes: one stacked bar per plan, and how much of the call waited for copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paretune.harness.report.plots.style import COLOURS, blank, legend_of_plans, numbered, part_of, titled
from paretune.harness.report.stages import stages, stalled_s
from paretune.harness.report.table import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["stages_plot"]


def stages_plot(rows: Sequence[Row], *, max_plans: int = 12) -> Figure:
    """Seconds by phase of a call, stacked; a hatched bar beside each shows the seconds stalled on copies.

    Raises ``ValueError`` when no record has durations.
    """
    known = [row for row in rows if stages(row)]
    drawn = numbered(known[:max_plans])
    if not drawn:
        raise ValueError("no record has durations by phase, so there is nothing to plot")
    names = list(dict.fromkeys(name for _, row in drawn for name in stages(row)))
    figure, axes = blank(2.5 + 0.5 * len(drawn))
    places = [float(number) for number, _ in drawn]
    left = [0.0] * len(drawn)
    for index, name in enumerate(names):
        parts = [stages(row).get(name, 0.0) for _, row in drawn]
        axes.barh(places, parts, left=left, height=0.5, color=COLOURS[index % len(COLOURS)], label=name)
        left = [start + part for start, part in zip(left, parts)]
    stalls = [stalled_s(row) for _, row in drawn]
    axes.barh(
        [p + 0.33 for p in places], stalls, height=0.14, color="white", edgecolor="k", hatch="////", label="stalled"
    )
    axes.set_yticks(places)
    axes.invert_yaxis()
    axes.set_xlabel("seconds of one call")
    axes.legend(fontsize=7, frameon=False, ncols=len(names) + 1)
    titled(figure, rows, "Time by stage" + part_of(len(drawn), len(known), "plans"))
    legend_of_plans(figure, drawn)
    return figure
