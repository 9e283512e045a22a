"""Write a table for programs and papers: CSV and JSON with raw values in base units, LaTeX as drawn, a pandas frame."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paretune.harness.records import Record
from paretune.harness.report.caption import caption
from paretune.harness.report.columns import COLUMNS, DEFAULT
from paretune.harness.report.grid import grid
from paretune.harness.report.table import Row
from paretune.harness.report.table import rows as rows_of

if TYPE_CHECKING:
    import pandas

__all__ = ["as_csv", "as_dicts", "as_json", "as_latex", "csv_text", "frame", "json_text", "tabular"]

_FIRST = ("workload", "device", "kind")
"""What every line says of itself, whichever columns are asked for."""


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
}


def as_dicts(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Every column of every row, unrounded, in base units; what is needed to say which workload and device it was."""
    return [_one(row) for row in rows]


def as_csv(rows: Sequence[Row], columns: Sequence[str] | None = None, *, header: bool = True) -> str:
    """Every column, or these beside workload, device and kind. Unknown is empty."""
    return csv_text(_names(columns), _chosen(rows, columns), header=header)


def csv_text(names: Sequence[str], lines: Iterable[Mapping[str, Any]], *, header: bool = True) -> str:
    """Comma-separated lines. A cell that a spreadsheet would run as a formula is quoted."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(names)
    writer.writerows([_inert(line[name]) for name in names] for line in lines)
    return out.getvalue()


def as_json(rows: Sequence[Row], columns: Sequence[str] | None = None) -> str:
    """A document with the caption and the rows: every column, or these beside workload, device and kind."""
    return json_text(caption(rows), _chosen(rows, columns))


def json_text(title: str, lines: Iterable[Mapping[str, Any]]) -> str:
    """A document of caption and rows; an infinite fidelity (exact) is written as the text ``inf``."""
    made = [{name: _finite(value) for name, value in line.items()} for line in lines]
    return json.dumps({"caption": title, "rows": made}, indent=1, allow_nan=False) + "\n"


def as_latex(rows: Sequence[Row], columns: Sequence[str] = DEFAULT) -> str:
    """The table as drawn, for papers; see ``tabular``."""
    drawn = grid(rows, columns)
    return tabular(
        [c.title for c in drawn.columns], drawn.cells, [c.is_number for c in drawn.columns], title=caption(rows)
    )


def tabular(
    titles: Sequence[str], cells: Iterable[Sequence[str]], is_number: Sequence[bool], *, title: str = ""
) -> str:
    """A ``tabular`` for the booktabs package; its last line says what the figures are, so that no paper loses it."""
    shape = "".join("r" if number else "l" for number in is_number)
    lines = [_latex_line(titles), r"\midrule", *map(_latex_line, cells), r"\bottomrule"]
    lines.append(f"\\multicolumn{{{len(titles)}}}{{l}}{{\\footnotesize {_latex(title)}}} \\\\")
    return "\n".join([f"\\begin{{tabular}}{{{shape}}}", r"\toprule", *lines, r"\end{tabular}"]) + "\n"


def frame(records: Iterable[Record], **options: Any) -> pandas.DataFrame:
    """The rows of ``records`` as a pandas frame, one line per plan; options and errors are those of ``rows``."""
    import pandas

    return pandas.DataFrame(as_dicts(rows_of(records, **options)), columns=_names(None))


def _names(columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return ["workload", "device", "is_reference", "is_feasible", *(c.name for c in COLUMNS)]
    return [*_FIRST, *(name for name in columns if name not in _FIRST)]


def _chosen(rows: Sequence[Row], columns: Sequence[str] | None) -> list[dict[str, Any]]:
    names = _names(columns)
    return [{name: line[name] for name in names} for line in as_dicts(rows)]


def _one(row: Row) -> dict[str, Any]:
    workload = row.record.workload
    first: dict[str, Any] = {"workload": workload.get("name", ""), "device": row.record.device}
    first |= {"is_reference": row.is_reference, "is_feasible": row.is_feasible}
    return first | {c.name: getattr(row, c.name) for c in COLUMNS}


def _inert(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in tuple("=+-@\t\r"):
        return "'" + value
    return value


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(char, char if char.isprintable() else " ") for char in " ".join(text.split()))
