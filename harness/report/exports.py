"""Write a table for programs and papers: CSV and JSON with raw values in base units, LaTeX as drawn, a pandas frame."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from paretune.harness.records import Record
from paretune.harness.report.caption import caption
from paretune.harness.report.columns import COLUMNS, DEFAULT
from paretune.harness.report.grid import grid
from paretune.harness.report.table import Row
from paretune.harness.report.table import rows as rows_of

if TYPE_CHECKING:
    import pandas

__all__ = ["as_csv", "as_dicts", "as_json", "as_latex", "frame"]

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


def as_csv(rows: Sequence[Row]) -> str:
    """Comma-separated with a header; unknown is empty. A cell that a spreadsheet would run as a formula is quoted."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    made = as_dicts(rows)
    writer.writerow(["workload", "device", "is_reference", "is_feasible", *(c.name for c in COLUMNS)])
    writer.writerows([[_inert(value) for value in line.values()] for line in made])
    return out.getvalue()


def as_json(rows: Sequence[Row]) -> str:
    """A document with the caption and the rows; an infinite fidelity (exact) is written as the text ``inf``."""
    made = [{name: _finite(value) for name, value in line.items()} for line in as_dicts(rows)]
    return json.dumps({"caption": caption(rows), "rows": made}, indent=1, allow_nan=False) + "\n"


def as_latex(rows: Sequence[Row], columns: Sequence[str] = DEFAULT) -> str:
    """A ``tabular`` for the booktabs package."""
    drawn = grid(rows, columns)
    shape = "".join("r" if c.is_number else "l" for c in drawn.columns)
    lines = [_latex_line([c.title for c in drawn.columns]), r"\midrule", *map(_latex_line, drawn.cells)]
    body = "\n".join([f"\\begin{{tabular}}{{{shape}}}", r"\toprule", *lines, r"\bottomrule", r"\end{tabular}"])
    return f"% {' '.join(caption(rows).split())}\n{body}\n"


def frame(records: Iterable[Record], **options: Any) -> pandas.DataFrame:
    """The rows of ``records`` as a pandas frame, one line per plan; options and errors are those of ``rows``."""
    import pandas

    names = ["workload", "device", "is_reference", "is_feasible", *(c.name for c in COLUMNS)]
    return pandas.DataFrame(as_dicts(rows_of(records, **options)), columns=names)


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
    return " & ".join("".join(_LATEX.get(char, char) for char in " ".join(cell.split())) for cell in cells) + r" \\"
