"""Draw the trade-off per technique as text or Markdown."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from paretune.harness.report.exports import csv_text, json_text, tabular
from paretune.harness.report.markdown import escape, table
from paretune.harness.report.techniques import Technique
from paretune.harness.report.text import one_line
from paretune.harness.report.units import gib, ratio

__all__ = [
    "TITLES",
    "technique_cells",
    "techniques_csv",
    "techniques_json",
    "techniques_latex",
    "techniques_markdown",
    "techniques_text",
]

_FIELDS = tuple(field.name for field in dataclasses.fields(Technique))
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


def techniques_latex(found: Sequence[Technique], title: str) -> str:
    """A ``tabular`` as drawn, with ``title`` as its last line."""
    return tabular(TITLES, map(technique_cells, found), [name != "technique" for name in TITLES], title=title)


def techniques_csv(found: Sequence[Technique], about: Mapping[str, str], *, header: bool = True) -> str:
    """Unrounded figures in base units, each line beginning with what it is ``about`` (workload, device, kind)."""
    return csv_text([*about, *_FIELDS], [{**about, **dataclasses.asdict(one)} for one in found], header=header)


def techniques_json(found: Sequence[Technique], title: str) -> str:
    """A document with the caption and the same lines."""
    return json_text(title, map(dataclasses.asdict, found))


def techniques_text(found: Sequence[Technique]) -> str:
    """Fixed-width lines, the technique last."""
    lines = [TITLES, *(tuple(map(one_line, technique_cells(technique))) for technique in found)]
    widths = [max(len(line[n]) for line in lines) for n in range(1, len(TITLES))]
    drawn = ["  ".join([*(c.rjust(w) for c, w in zip(line[1:], widths)), line[0]]) for line in lines]
    return "\n".join(drawn) + "\n"


def _fidelity(technique: Technique) -> str:
    if technique.fidelity_db is None:
        return "lossy" if technique.is_lossy else "-"
    return "exact" if math.isinf(technique.fidelity_db) else f"{technique.fidelity_db:.1f} dB"
