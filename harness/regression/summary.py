"""Write findings for people: terminal text, a Markdown step summary, and annotations for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from paretune.harness.regression.findings import TIMED, Finding, Status, verdict_line
from paretune.harness.report.markdown import escape, table

__all__ = ["MAX_ANNOTATIONS", "MAX_SUMMARY_BYTES", "step_summary", "text_report", "workflow_commands"]

MAX_SUMMARY_BYTES = 1_000_000
"""GitHub drops a whole step summary above 1 MiB (1,048,576 bytes); this leaves room for what other tools append."""

MAX_ANNOTATIONS = 10
"""GitHub shows ten annotations of a kind for a step and drops the rest."""

_SHOWN = (Status.REGRESSION, Status.INCONCLUSIVE, Status.IMPROVEMENT, Status.NOTE)


def text_report(findings: Sequence[Finding]) -> str:
    """The verdict, then a line for everything that is not a plain pass, the worst first."""
    told = [f"  {finding.status:<12} {finding.where}: {text}" for finding, text in _told(findings)]
    return "".join(f"{_printable(line)}\n" for line in (verdict_line(findings), *told))


def step_summary(findings: Sequence[Finding], *, max_bytes: int = MAX_SUMMARY_BYTES) -> str:
    """Markdown of at most ``max_bytes`` bytes: the verdict, then as many of the findings as there is room for."""
    head = f"## paretune check\n\n{escape(verdict_line(findings))}\n\n"
    titles, shown = ("", "plan", "metric", "what"), list(_told(findings))
    if not shown:
        return head
    cells = [[f.status.value, escape(f.where), escape(f.metric), escape(text)] for f, text in shown]
    start = head + table(titles, [], [False] * 4)
    left, lines = max_bytes - len(start.encode()) - 100, []
    for cell in cells:
        line = f"| {' | '.join(cell)} |\n"
        left -= len(line.encode())
        if left < 0:
            break
        lines.append(line)
    hidden = len(cells) - len(lines)
    return start + "".join(lines) + (f"\n{hidden} more are in the JSON report.\n" if hidden else "")


def workflow_commands(findings: Sequence[Finding]) -> list[str]:
    """Workflow commands of GitHub, at most ten of each kind; the last says how many are not shown."""
    errors = [f for f in findings if f.status is Status.REGRESSION]
    warnings = [f for f in findings if f.status is Status.INCONCLUSIVE]
    return [*_commands("error", errors), *_commands("warning", warnings)]


def _commands(kind: str, findings: Sequence[Finding]) -> Iterable[str]:
    room = MAX_ANNOTATIONS if len(findings) <= MAX_ANNOTATIONS else MAX_ANNOTATIONS - 1
    for finding in findings[:room]:
        yield f"::{kind} title={_property(f'{finding.metric} of {finding.where}')}::{_data(finding.text)}"
    if len(findings) > room:
        yield f"::{kind} title=paretune check::{len(findings) - room} more are in the report"


def _data(text: str) -> str:
    shown = "".join(char if char.isprintable() or char in "\r\n" else " " for char in text)
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _told(findings: Sequence[Finding]) -> Iterator[tuple[Finding, str]]:
    """What is not a plain pass, the worst first, and every verdict about time; causes that repeat are not told again."""
    before: tuple[str, tuple[str, ...]] | None = None
    for status in (*_SHOWN, Status.PASS):
        for finding in findings:
            if finding.status is not status or (status is Status.PASS and finding.metric not in TIMED):
                continue
            causes = (finding.where, finding.causes)
            is_repeated = finding.causes != () and causes == before
            yield finding, f"{finding.sentence} (for the same reasons)" if is_repeated else finding.text
            before = causes


def _printable(line: str) -> str:
    """The line without what a terminal would obey or could not show."""
    return "".join(char if char.isprintable() else " " for char in line)
