"""Draw how memory rose and fell over one call: what each kind of bytes held, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from paretune.harness.report.plots.style import COLOURS, blank, headed
from paretune.harness.report.units import GIB_BYTES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["timeline_plot"]

_KINDS = ("weight", "buffer", "activation", "workspace")


def timeline_plot(rows: Sequence[Sequence[Any]], said: str) -> Figure:
    """Live bytes by kind over seconds, from a record's ``memory_timeline``; ``said`` stands below the title.

    Raises ``ValueError`` for fewer than two rows.
    """
    if len(rows) < 2:
        raise ValueError("the call left no timeline of its memory, so there is nothing to plot")
    figure, axes = blank()
    seen = {kind for row in rows for kind in row[3]}
    kinds = [kind for kind in _KINDS if kind in seen] + sorted(seen.difference(_KINDS))
    seconds = [row[0] for row in rows]
    sizes = [[row[3].get(kind, 0) / GIB_BYTES for row in rows] for kind in kinds]
    colours = [COLOURS[index % len(COLOURS)] for index in range(len(kinds))]
    axes.stackplot(seconds, *sizes, labels=kinds, colors=colours, step="pre", alpha=0.8)
    _mark_phases(axes, rows)
    axes.set_xlim(0, seconds[-1] or 1.0)
    axes.set_xlabel("seconds of the call")
    axes.set_ylabel("live bytes, GiB (2^30 bytes)")
    axes.legend(fontsize=7, frameon=False, ncols=len(kinds), loc="lower right")
    headed(figure, "Device memory over one call; every maximum is kept", said)
    return figure


def _mark_phases(axes: Axes, rows: Sequence[Sequence[Any]]) -> None:
    """Where each phase begins; names at different heights, because short phases lie close together."""
    begins, middle = 0.0, rows[-1][0] / 2
    axes.margins(y=0.15)
    for number, (phase, entries) in enumerate(groupby(rows, key=lambda row: row[2])):
        axes.axvline(begins, color="#666666", linewidth=0.6, linestyle=":")
        place, side = (begins, 0.99 - 0.035 * (number % 3)), "left" if begins < middle else "right"
        axes.annotate(f" {phase} ", place, xycoords=("data", "axes fraction"), fontsize=7, va="top", ha=side)
        begins = list(entries)[-1][0]
