"""Draw a table as plain text, figures first so that long plans at the end disturb no column."""

from __future__ import annotations

from collections.abc import Sequence

from paretune.harness.report.caption import caption
from paretune.harness.report.columns import DEFAULT
from paretune.harness.report.grid import grid
from paretune.harness.report.table import Row

__all__ = ["one_line", "text"]

_LAST = ("plan", "reason")


def text(rows: Sequence[Row], columns: Sequence[str] = DEFAULT) -> str:
    """Fixed-width lines with a caption above; control characters of what was recorded are made visible."""
    drawn = grid(rows, columns)
    order = sorted(range(len(drawn.columns)), key=lambda i: (drawn.columns[i].name in _LAST, i))
    titles = [drawn.columns[i].title for i in order]
    lines = [[one_line(cells[i]) for i in order] for cells in drawn.cells]
    widths = [max(len(line[n]) for line in [titles, *lines]) for n in range(len(titles))]
    rights = [drawn.columns[i].is_number for i in order]
    body = [_line(line, widths, rights) for line in lines]
    return "\n".join([one_line(caption(rows)), "", _line(titles, widths, rights), _rule(widths), *body]) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int], rights: Sequence[bool]) -> str:
    padded = [c.rjust(w) if right else c.ljust(w) for c, w, right in zip(cells, widths, rights)]
    return "  ".join(padded).rstrip()


def _rule(widths: Sequence[int]) -> str:
    return "  ".join("-" * width for width in widths)


def one_line(cell: str) -> str:
    """The text with whatever a terminal would obey made visible."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cell)
