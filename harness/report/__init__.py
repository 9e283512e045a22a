"""Answers people can use: records become rows in one place, and rows become text, tables, plots and a page."""

from __future__ import annotations

from paretune.harness.report.caption import caption, headline
from paretune.harness.report.exports import as_csv, as_dicts, as_json, as_latex, frame
from paretune.harness.report.markdown import markdown
from paretune.harness.report.table import MixedRecords, Row, group, rows
from paretune.harness.report.text import text

__all__ = [
    "MixedRecords",
    "Row",
    "as_csv",
    "as_dicts",
    "as_json",
    "as_latex",
    "caption",
    "frame",
    "group",
    "headline",
    "markdown",
    "rows",
    "text",
]
