"""What a comparison finds: one verdict per plan and metric, what it means for the gate, and the exit status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "EXIT_INCONCLUSIVE",
    "EXIT_PASS",
    "EXIT_REGRESSION",
    "TIMED",
    "Finding",
    "Status",
    "Verdict",
    "exit_status",
    "verdict_line",
]

EXIT_PASS, EXIT_REGRESSION, EXIT_INCONCLUSIVE = 0, 1, 3
"""Exit statuses of the gate; 2 is a usage error. Never 0 for what could not be compared."""


TIMED = ("latency", "processor_time")
"""Metrics that are judged by pairs of processes; whoever asks for them is told also that they are the same."""


class Verdict(StrEnum):
    """What was seen. Time is SAME, FAST, SLOW or AMBIGUOUS; sizes and counts are SAME, LESS or MORE."""

    SAME = "same"
    LESS = "less"
    MORE = "more"
    FAST = "fast"
    SLOW = "slow"
    AMBIGUOUS = "ambiguous"
    CHANGED = "changed"
    BROKEN = "broken"
    FIXED = "fixed"
    MISSING = "missing"
    FOREIGN = "foreign"


class Status(StrEnum):
    """What it means for the gate."""

    PASS = "pass"
    IMPROVEMENT = "improvement"
    NOTE = "note"
    INCONCLUSIVE = "inconclusive"
    REGRESSION = "regression"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One metric of one plan, baseline against head; figures in the metric's own unit, ``None`` where there is none.

    causes: what brought it about as far as the counters tell, such as ``aten::clone 0 -> 1``.
    """

    where: str
    metric: str
    verdict: Verdict
    status: Status
    sentence: str
    baseline: float | str | None = None
    head: float | str | None = None
    causes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The sentence with its causes."""
        return f"{self.sentence} ({'; '.join(self.causes)})" if self.causes else self.sentence


def exit_status(findings: Iterable[Finding]) -> int:
    """1 when anything regressed, else 3 when anything could not be compared or nothing was, else 0."""
    seen = {finding.status for finding in findings}
    if Status.REGRESSION in seen:
        return EXIT_REGRESSION
    return EXIT_INCONCLUSIVE if not seen or Status.INCONCLUSIVE in seen else EXIT_PASS


def verdict_line(findings: Iterable[Finding]) -> str:
    """The whole comparison in one line."""
    listed = list(findings)
    counts = {status: sum(finding.status is status for finding in listed) for status in Status}
    plans = len({finding.where for finding in listed})
    told = [_counted(counts[status], status) for status in (Status.REGRESSION, Status.IMPROVEMENT) if counts[status]]
    if counts[Status.INCONCLUSIVE]:
        told.append(f"{counts[Status.INCONCLUSIVE]} inconclusive")
    head = {0: "pass", 1: "regression", 3: "inconclusive"}[exit_status(listed)]
    where = f"{_counted(len(listed), 'metric')} of {_counted(plans, 'plan')}"
    return f"{head}: {', '.join(told) or 'nothing changed'} in {where}."


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
