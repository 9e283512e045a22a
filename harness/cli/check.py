"""``paretune check``: measure what a baseline holds again and say what changed; the exit status is for CI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paretune.harness.regression.gate import Request, gate, write_outputs

__all__ = ["command"]

BaselineOption = Annotated[Path, typer.Option("--baseline", help="The committed .jsonl of records to compare with.")]


def command(
    baseline: BaselineOption,
    records: Annotated[Path | None, typer.Option(help="Take these records instead of measuring again.")] = None,
    base: Annotated[
        str | None, typer.Option(help="Base revision (a checkout, or its name in git): also judge time, in turns.")
    ] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of processes for time, to begin with.")] = 4,
    max_pairs: Annotated[int, typer.Option(min=1, help="Pairs at most, while the verdict is ambiguous.")] = 16,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of base, head, head, base in each pair, at least.")] = 5,
    tolerance: Annotated[float, typer.Option(min=0.0, help="Slowdown to detect, as a fraction.")] = 0.10,
    spread: Annotated[
        float | None, typer.Option(min=0.0, help="How much equal code differs between processes here.")
    ] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Time the code against itself; say what this machine can detect.")
    ] = False,
    update: Annotated[bool, typer.Option("--update", help="Move the baseline, after measuring twice.")] = False,
    because: Annotated[str | None, typer.Option(help="Why a figure may become worse.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Trials at a time; only where time is simulated.")] = 1,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML there.")] = None,
    summary: Annotated[Path | None, typer.Option(help="Append a Markdown step summary there.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write everything as JSON there.")] = None,
) -> None:
    """Compare with a baseline. Exits 0 pass, 1 regression, 2 usage error, 3 could not compare."""
    request = Request(
        baseline=baseline,
        records=records,
        base=base,
        num_pairs=pairs,
        max_pairs=max_pairs,
        num_rounds=rounds,
        tolerance=tolerance,
        spread=spread,
        is_self_test=self_test,
        num_workers=workers,
    )
    if update:
        from paretune.harness.regression.gate import update_baseline

        print(update_baseline(request, because=because, tell=_tell))
        return
    verdict = gate(request, tell=_tell)
    print(verdict.text, end="")
    write_outputs(verdict, junit_file=junit, summary_file=summary, json_file=json_file)
    raise typer.Exit(verdict.exit_status)


def _tell(line: str) -> None:
    print(line, file=sys.stderr)
