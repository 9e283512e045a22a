"""Draw which parameters decide time or memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paretune.harness.report.plots.style import COLOURS, blank, headed, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["importance_plot"]


_LEAST_SHOWN = 0.001


def importance_plot(shares: Mapping[str, float], *, metric: str, title: str = "", max_bars: int = 20) -> Figure:
    """Bars of the largest ``shares`` of variance, from a thousandth up. Raises ``ValueError`` when there are none."""
    if not shares:
        raise ValueError("no parameter has an importance, so there is nothing to plot")
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    chosen = [item for item in ranked[:max_bars] if item[1] >= _LEAST_SHOWN] or ranked[:1]
    figure, axes = blank(1.5 + 0.3 * len(chosen))
    axes.barh([plain(name) for name, _ in chosen], [share for _, share in chosen], color=COLOURS[2])
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize=7)
    axes.set_xlabel(f"share of the variance of {metric} (fANOVA)")
    headed(figure, f"What decides {metric}", title)
    return figure
