"""Draw time against device memory, the front as a line and budgets as limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paretune.harness.report.plots.style import COLOURS, blank, legend_of_plans, numbered, titled
from paretune.harness.report.table import Row
from paretune.harness.report.units import GIB_BYTES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["pareto_plot"]

_TOO_NEAR = 0.02
"""Share of the axis within which two numbers cover one another; figures are about half as high as wide."""


def pareto_plot(rows: Sequence[Row], *, budgets_bytes: Sequence[int] = ()) -> Figure:
    """Every complete plan as a point (lossy ones hollow), those on the front joined and numbered.

    Raises ``ValueError`` when no row has both a time and a size.
    """
    points = [row for row in rows if row.latency_s is not None and row.needed_bytes is not None]
    if not points:
        raise ValueError("no plan has both a latency and a memory figure, so there is nothing to plot")
    front = sorted((row for row in points if row.is_on_front), key=lambda row: row.needed_bytes or 0)
    figure, axes = blank(5.0 + 0.14 * len(front))
    _scatter(axes, points)
    _draw_front(axes, front)
    for place, label in _labels(front, points):
        axes.annotate(label, place, textcoords="offset points", xytext=(5, 4), fontsize=8)
    for budget_bytes in budgets_bytes:
        _draw_budget(axes, budget_bytes)
    axes.set_xlabel("device memory needed, GiB (2^30 bytes)")
    axes.set_ylabel("latency, s")
    axes.set_ylim(0, 1.1 * max(_time(points)))
    axes.set_xlim(0, 1.05 * max(_gib(points)))
    axes.legend(fontsize=7, frameon=False, loc="lower right")
    titled(figure, rows, "Time against device memory")
    legend_of_plans(figure, numbered(front))
    return figure


def _scatter(axes: Axes, points: Sequence[Row]) -> None:
    for is_lossy, label in ((False, "exact"), (True, "lossy")):
        chosen = [row for row in points if row.is_lossy is is_lossy]
        if chosen:
            face = "none" if is_lossy else COLOURS[0]
            axes.scatter(_gib(chosen), _time(chosen), edgecolors=COLOURS[0], facecolors=face, s=28, label=label)
    for row in points:
        if row.is_reference:
            axes.scatter(
                _gib([row]), _time([row]), marker="s", s=90, facecolors="none", edgecolors="k", label="reference"
            )


def _draw_front(axes: Axes, front: Sequence[Row]) -> None:
    if not front:
        return
    axes.step(_gib(front), _time(front), where="post", color=COLOURS[5], linewidth=1.2, label="front")


def _labels(front: Sequence[Row], points: Sequence[Row]) -> list[tuple[tuple[float, float], str]]:
    """The numbers on the front and where they stand; numbers that would cover one another share a place."""
    reach = (_TOO_NEAR * max(_gib(points)), 2 * _TOO_NEAR * max(_time(points)))
    labels: list[tuple[tuple[float, float], str]] = []
    for number, row in numbered(front):
        place = (_gib([row])[0], _time([row])[0])
        last = labels[-1] if labels else None
        if last is not None and all(abs(a - b) < most for a, b, most in zip(place, last[0], reach)):
            labels[-1] = (last[0], f"{last[1]}, {number}")
        else:
            labels.append((place, str(number)))
    return labels


def _draw_budget(axes: Axes, budget_bytes: int) -> None:
    place = budget_bytes / GIB_BYTES
    axes.axvline(place, color="#666666", linestyle="--", linewidth=0.8)
    axes.annotate(
        f"budget {place:g} GiB",
        (place, 1),
        xycoords=("data", "axes fraction"),
        fontsize=7,
        ha="right",
        rotation=90,
        va="top",
    )


def _gib(rows: Sequence[Row]) -> list[float]:
    return [(row.needed_bytes or 0) / GIB_BYTES for row in rows]


def _time(rows: Sequence[Row]) -> list[float]:
    return [row.latency_s or 0.0 for row in rows]
