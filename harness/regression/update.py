"""Move a baseline: only to figures that two independent measurements agree on, and to worse ones only with a reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from paretune.harness.records import Record
from paretune.harness.regression.compare import by_identity, compare
from paretune.harness.regression.findings import Finding, Status
from paretune.harness.usage import UsageError

__all__ = ["moved"]


def moved(
    baseline: Sequence[Record], first: Sequence[Record], second: Sequence[Record], *, because: str | None
) -> list[Record]:
    """The new baseline: every record of ``first``, proved by ``second``.

    baseline: the old one, empty when there is none. first, second: the same plans measured twice, in fresh processes.
    because: why a figure may become worse; kept in the records that did, under ``facts.accepted_because``.

    Raises ``UsageError`` when the two measurements differ (noise would move the baseline), when a plan of the
    old baseline is not among them, or when something became worse and no reason was given.
    """
    _refuse_noise(first, second)
    lost = by_identity(baseline, "the baseline").keys() - by_identity(first, "the head").keys()
    if lost:
        raise UsageError(f"{len(lost)} plans of the baseline were not measured. Measure all, or make a new file.")
    worse = _worse(compare(baseline, first)) if baseline else {}
    if worse and not (because and because.strip()):
        listed = "\n".join(f"  {finding.where}: {finding.text}" for found in worse.values() for finding in found[:3])
        raise UsageError(f"the baseline would become worse:\n{listed}\nSay why with --because, or mend it.")
    return [_with_reason(record, because, worse) for record in first]


def _refuse_noise(first: Sequence[Record], second: Sequence[Record]) -> None:
    found = [f for f in compare(first, second) if f.status not in (Status.PASS, Status.NOTE)]
    if found:
        listed = "\n".join(f"  {finding.where}: {finding.text}" for finding in found[:5])
        raise UsageError(f"two measurements of the same code differ, so neither can be a baseline:\n{listed}")


def _worse(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    by_plan: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.status is Status.REGRESSION:
            by_plan.setdefault(finding.where, []).append(finding)
    return by_plan


def _with_reason(record: Record, because: str | None, worse: dict[str, list[Finding]]) -> Record:
    from paretune.harness.regression.identity import name_of

    if name_of(record) not in worse:
        return record
    return dataclasses.replace(record, facts={**record.facts, "accepted_because": because})
