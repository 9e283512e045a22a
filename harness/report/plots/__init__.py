"""Figures made from rows, without a window or global state; each function returns a matplotlib figure to save."""

from __future__ import annotations

from paretune.harness.report.plots.importance import importance_plot
from paretune.harness.report.plots.ladder import ladder_plot
from paretune.harness.report.plots.pareto import pareto_plot
from paretune.harness.report.plots.phases import phases_plot
from paretune.harness.report.plots.stages import stages_plot
from paretune.harness.report.plots.style import PLOT_FORMATS, save
from paretune.harness.report.plots.timeline import timeline_plot

__all__ = [
    "PLOT_FORMATS",
    "importance_plot",
    "ladder_plot",
    "pareto_plot",
    "phases_plot",
    "save",
    "stages_plot",
    "timeline_plot",
]
