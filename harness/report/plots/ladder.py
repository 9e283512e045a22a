"""Draw the fastest time that each memory size buys."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paretune.harness.report.ladder import Rung
from paretune.harness.report.plots.style import COLOURS, blank, headed, plain
from paretune.harness.report.units import seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["ladder_plot"]


def ladder_plot(rungs: Sequence[Rung], *, title: str = "") -> Figure:
    """One bar per memory size, its plan written on it; sizes that nothing fits say so.

    Raises ``ValueError`` when nothing fits any size.
    """
    if not any(rung.row for rung in rungs):
        raise ValueError("no plan fits any of the memory sizes, so there is nothing to plot")
    figure, axes = blank(2.0 + 0.45 * len(rungs))
    for place, rung in enumerate(rungs):
        if rung.row is None:
            _write(axes, place, "nothing fits")
            continue
        axes.barh(place, rung.row.latency_s or 0.0, height=0.7, color=COLOURS[1 if rung.row.is_lossy else 4])
        _write(axes, place, f"{seconds(rung.row.latency_s or 0.0)}  {rung.row.plan}")
    axes.set_yticks(range(len(rungs)), [f"{rung.memory_gib:g} GiB" for rung in rungs])
    axes.set_xlabel("latency of the fastest plan that fits, s")
    headed(figure, "What each memory size buys", title)
    return figure


def _write(axes: Axes, place: int, words: str) -> None:
    shown = textwrap.fill(words, 125, max_lines=3, placeholder=" ...", subsequent_indent="    ")
    axes.annotate(plain(shown), (0, place), fontsize=7, va="center", xytext=(4, 0), textcoords="offset points")
