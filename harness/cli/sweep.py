"""``paretune sweep``: measure every plan of a question in order."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paretune.harness.cli.asking import (
    OutputOption,
    QuestionArgument,
    StorageOption,
    TrialsOption,
    VramOption,
    WorkersOption,
    asked,
    open_study,
    progress_on_stderr,
)
from paretune.harness.cli.options import DeviceText, OverridesArgument, TableFormat

__all__ = ["command"]


def command(
    question: QuestionArgument,
    overrides: OverridesArgument = None,
    device: Annotated[str | None, typer.Option(help=f"Where to run: {DeviceText}.")] = None,
    vram: VramOption = None,
    trials: TrialsOption = None,
    workers: WorkersOption = None,
    storage: StorageOption = None,
    output: OutputOption = Path("paretune-results"),
    format: Annotated[TableFormat, typer.Option("--format", help="How the table is printed.")] = "text",
) -> None:
    """Run every plan once and print the table. Interrupting keeps everything; the same command goes on."""
    from paretune.harness.runner import run_trial
    from paretune.harness.study import Study

    settings = {"device": device, "budget.device_memory": vram, "effort.workers": workers, "search.sampler": "grid"}
    made = asked(question, overrides or [], {**settings, "effort.max_trials": trials or 10**6})
    made = made.without_lifting()
    store, ledger = open_study(made, output, storage, run_trial)
    study = Study(question=made, store=store, ledger=ledger, run_trial=run_trial, progress=progress_on_stderr())
    result = study.run()
    print(f"{len(result.records)} plans, {result.num_run} run now, {made.plans.num_refused} refused.", file=sys.stderr)
    _print(list(result.records), format, vram)


def _print(records: list[object], format: str, vram: str | None) -> None:
    from paretune.harness import report
    from paretune.harness.report.draw import draw_table

    table = report.rows(records, budget=vram)  # type: ignore[arg-type]
    sys.stdout.write(draw_table(table, format_name=format, columns=None, budget=vram, techniques=False))
