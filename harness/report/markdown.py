"""Draw a table as GitHub Markdown, with whatever could be read as markup escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paretune.harness.report.caption import caption
from paretune.harness.report.columns import DEFAULT
from paretune.harness.report.grid import grid
from paretune.harness.report.table import Row
from paretune.harness.report.text import one_line

__all__ = ["escape", "markdown", "table"]


def markdown(rows: Sequence[Row], columns: Sequence[str] = DEFAULT) -> str:
    """Caption and table; plans are set as code."""
    drawn = grid(rows, columns)
    names = [c.name for c in drawn.columns]
    cells = [[_cell(name, value) for name, value in zip(names, line)] for line in drawn.cells]
    return f"{escape(caption(rows))}\n\n" + table(
        [c.title for c in drawn.columns], cells, [c.is_number for c in drawn.columns]
    )


def table(titles: Sequence[str], cells: Sequence[Sequence[str]], is_number: Sequence[bool]) -> str:
    """A Markdown table of cells that are already escaped."""
    marks = ["---:" if number else "---" for number in is_number]
    lines = [titles, marks, *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def escape(text: str) -> str:
    """Text that shows as it is: no markup, no HTML, no line break, no mention of a person."""
    flat = one_line(" ".join(text.encode(errors="replace").decode().split()))
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return re.sub(r"([\\`*_{}\[\]|~#!])", r"\\\1", flat)


def _cell(name: str, value: str) -> str:
    if name != "plan":
        return escape(value)
    flat = one_line(" ".join(value.split())).replace("|", "\\|")
    return escape(value) if "`" in flat else f"`{flat}`"
