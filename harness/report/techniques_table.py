"""Draw the trade-off per technique as text or Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paretune.harness.report.markdown import escape, table
from paretune.harness.report.techniques import Technique
from paretune.harness.report.units import gib, ratio

__all__ = ["TITLES", "techniques_markdown", "techniques_text", "technique_cells"]

TITLES = ("technique", "time", "memory", "saved GiB", "fidelity", "rescued", "compared")


def technique_cells(technique: Technique) -> tuple[str, ...]:
    """The cells of one line, as drawn."""
    return (
        technique.setting,
        "-" if technique.relative_latency is None else ratio(technique.relative_latency),
        "-" if technique.relative_memory is None else ratio(technique.relative_memory),
        "-" if technique.saved_bytes is None else gib(technique.saved_bytes),
        _fidelity(technique),
        str(technique.rescued or "-"),
        str(technique.num_comparisons),
    )


def techniques_markdown(found: Sequence[Technique]) -> str:
    """A Markdown table; ``time`` and ``memory`` are with over without the technique, medians over the comparisons."""
    cells = [[escape(cell) for cell in technique_cells(technique)] for technique in found]
    return table(TITLES, cells, [title != "technique" for title in TITLES])


def techniques_text(found: Sequence[Technique]) -> str:
    """Fixed-width lines, the technique last."""
    lines = [TITLES, *map(technique_cells, found)]
    widths = [max(len(line[n]) for line in lines) for n in range(1, len(TITLES))]
    drawn = ["  ".join([*(c.rjust(w) for c, w in zip(line[1:], widths)), line[0]]) for line in lines]
    return "\n".join(drawn) + "\n"


def _fidelity(technique: Technique) -> str:
    if technique.fidelity_db is None:
        return "lossy" if technique.is_lossy else "-"
    return "exact" if math.isinf(technique.fidelity_db) else f"{technique.fidelity_db:.1f} dB"
