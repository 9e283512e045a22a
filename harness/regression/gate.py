"""The gate as a whole: take or measure the head, compare, judge time where a base is given, write what CI reads."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paretune.harness.records import Kind, Record
from paretune.harness.regression import baseline as baselines
from paretune.harness.regression.checkout import checked_out
from paretune.harness.regression.compare import compare
from paretune.harness.regression.document import document
from paretune.harness.regression.findings import Finding, exit_status
from paretune.harness.regression.identity import name_of
from paretune.harness.regression.junit import junit
from paretune.harness.regression.latency import DEFAULT_SPREAD, Sensitivity, check_tolerance
from paretune.harness.regression.rerun import Run, measure_again
from paretune.harness.regression.sides import check_head
from paretune.harness.regression.summary import step_summary, text_report, workflow_commands
from paretune.harness.regression.timing import time_findings
from paretune.harness.regression.update import moved
from paretune.harness.report.reading import read_records
from paretune.harness.report.units import percent
from paretune.harness.stats import detectable_effect
from paretune.harness.usage import UsageError

__all__ = ["Gate", "Request", "gate", "update_baseline", "write_outputs"]

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of the gate; see ``paretune check --help``.

    base: a folder or a revision in git. spread: ``None`` takes the published figure.
    """

    baseline: Path
    records: Path | None = None
    base: str | None = None
    num_pairs: int = 4
    max_pairs: int = 16
    num_rounds: int = 5
    tolerance: float = 0.10
    spread: float | None = None
    is_self_test: bool = False
    num_workers: int = 1

    @property
    def judges_time(self) -> bool:
        return self.base is not None or self.is_self_test

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(tolerance=self.tolerance, spread=DEFAULT_SPREAD if self.spread is None else self.spread)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What came of it. detectable: the smallest slowdown the pairs could show, ``None`` when time was not judged."""

    findings: tuple[Finding, ...]
    detectable: float | None

    @property
    def exit_status(self) -> int:
        return exit_status(self.findings)

    @property
    def text(self) -> str:
        return text_report(self.findings)


def gate(request: Request, *, run: Run | None = None, tell: Tell = lambda line: None) -> Gate:
    """Compare the head with the baseline. Raises ``UsageError``: for a baseline that guards nothing, and for more
    precision in time than the pairs can give.
    """
    before = baselines.read(request.baseline)
    detectable = _detectable(request, before, tell)
    with tempfile.TemporaryDirectory() as folder:
        scratch, base = Path(folder), None
        if request.base is not None:
            base = checked_out(request.base, scratch)
            check_head(base)
        found = [] if request.is_self_test else compare(before, _head(request, before, run, tell))
        if request.judges_time:
            found += time_findings(before, request, base=base, scratch=scratch, tell=tell)
    return Gate(findings=tuple(found), detectable=detectable)


def update_baseline(
    request: Request, *, because: str | None, run: Run | None = None, tell: Tell = lambda line: None
) -> str:
    """Measure everything twice and move the baseline; returns what was done. Raises ``UsageError`` without proof."""
    exists = request.baseline.exists()
    before = baselines.read(request.baseline) if exists else []
    plans = read_records(request.records)[0] if request.records is not None else before
    if not plans:
        raise UsageError(f"{request.baseline} does not exist yet: name the plans it shall hold with --records FILE.")
    first, second = (_measured(request, plans, run, tell) for _ in range(2))
    kept = moved(before, first, second, because=because)
    baselines.write(request.baseline, kept)
    return f"{request.baseline}: {len(kept)} plans, each measured twice with equal results."


def write_outputs(verdict: Gate, *, junit_file: Path | None, summary_file: Path | None, json_file: Path | None) -> None:
    """Write the files asked for; inside a GitHub job also the step summary and annotations, unasked."""
    if junit_file is not None:
        _write(junit_file, junit(verdict.findings))
    if json_file is not None:
        _write(json_file, document(verdict.findings, detectable_slowdown=verdict.detectable))
    place = summary_file or (Path(named) if (named := os.environ.get("GITHUB_STEP_SUMMARY")) else None)
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a", encoding="utf-8") as handle:
            handle.write(step_summary(verdict.findings))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        _say(workflow_commands(verdict.findings))


def _detectable(request: Request, before: Sequence[Record], tell: Tell) -> float | None:
    if not request.judges_time:
        return None
    if all(record.kind is Kind.SIMULATED for record in before):
        raise UsageError("simulated time is a calculation and is compared exactly: leave out --base and --self-test.")
    if request.max_pairs < request.num_pairs:
        raise UsageError(f"--max-pairs {request.max_pairs} is below --pairs {request.num_pairs}.")
    if request.base is not None and request.is_self_test:
        raise UsageError("--base and --self-test: a self-test times the head against itself. Leave one out.")
    effect = check_tolerance(request.max_pairs, request.sensitivity)
    first = detectable_effect(request.num_pairs, request.sensitivity.spread)
    tell(
        f"{request.num_pairs} pairs of processes can show a slowdown of {percent(first)}; while they leave it open, more "
        f"are measured, up to {request.max_pairs}, which can show {percent(effect)}."
    )
    return effect


def _head(request: Request, before: Sequence[Record], run: Run | None, tell: Tell) -> list[Record]:
    if request.records is not None:
        return read_records(request.records)[0]
    return _measured(request, before, run, tell)


def _measured(request: Request, plans: Sequence[Record], run: Run | None, tell: Tell) -> list[Record]:
    is_timed = any(record.kind is not Kind.SIMULATED for record in plans)
    if request.num_workers > 1 and is_timed:
        raise UsageError("--workers: trials that are really timed must not run side by side. Use one worker.")
    if run is None:
        from paretune.harness.runner import run_trial

        run = run_trial
    head: list[Record] = []
    for record in measure_again(plans, run=run, num_workers=request.num_workers):
        head.append(record)
        tell(f"[{len(head)}/{len(plans)}] {name_of(record)}: {record.outcome}")
    return head


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _say(lines: Iterable[str]) -> None:
    import sys

    sys.stdout.write("".join(f"{line}\n" for line in lines))
