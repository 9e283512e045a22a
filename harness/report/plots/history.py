"""Draw a figure over many runs, with the levels between change points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from paretune.harness.report.plots.style import COLOURS, blank, part_of, plain
from paretune.harness.report.units import GIB_BYTES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Change", "Line", "Point", "history_plot"]


class Point(Protocol):
    """One run."""

    @property
    def value(self) -> float: ...


class Change(Protocol):
    """Where a series changed."""

    @property
    def index(self) -> int: ...


class Line(Protocol):
    """One plan's runs in order."""

    @property
    def where(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def runs(self) -> Sequence[Point]: ...
    @property
    def changes(self) -> Sequence[Change]: ...


def history_plot(lines: Sequence[Line], *, max_lines: int = 8) -> Figure:
    """Values against the number of the run, change points as vertical lines of the same colour."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = blank(5.0)
    in_gib = lines[0].metric.endswith("_bytes")
    for number, line in enumerate(lines[:max_lines]):
        colour = COLOURS[number % len(COLOURS)]
        values = [run.value / (GIB_BYTES if in_gib else 1) for run in line.runs]
        axes.plot(values, marker=".", color=colour, label=plain(_short(line.where)))
        for change in line.changes:
            axes.axvline(change.index - 0.5, color=colour, linestyle="--", linewidth=0.8)
    axes.set_xlabel("run")
    axes.set_ylabel(plain(lines[0].metric) + (" in GiB" if in_gib else ""))
    axes.set_xlim(-0.5, max(len(line.runs) for line in lines) - 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    figure.legend(fontsize=6.5, frameon=False, loc="outside lower left")
    part = part_of(min(len(lines), max_lines), len(lines), "series")
    figure.suptitle(f"History with change points{part}", fontsize=9)
    return figure


def _short(where: str) -> str:
    """A long plan without its middle: the end says which kind of figures they are."""
    return where if len(where) <= 90 else f"{where[:60]} ... {where[-25:]}"
