"""Draw which parameters decide time or memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paretune.harness.report.plots.style import COLOURS, blank, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["importance_plot"]


def importance_plot(shares: Mapping[str, float], *, metric: str, title: str = "", max_bars: int = 20) -> Figure:
    """Horizontal bars of the largest ``shares`` of variance. Raises ``ValueError`` when there are none."""
    if not shares:
        raise ValueError("no parameter has an importance, so there is nothing to plot")
    chosen = sorted(shares.items(), key=lambda item: -item[1])[:max_bars]
    figure, axes = blank(1.5 + 0.3 * len(chosen))
    axes.barh([plain(name) for name, _ in chosen], [share for _, share in chosen], color=COLOURS[2])
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize=7)
    axes.set_xlabel(f"share of the variance of {metric} (fANOVA)")
    figure.suptitle(plain(f"What decides {metric}\n{title}"), fontsize=9)
    return figure
