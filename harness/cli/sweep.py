"""``paretune sweep``: measure every plan of a question in order."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paretune.harness.cli.asking import (
    OutputOption,
    QuestionArgument,
    StorageOption,
    TrialsOption,
    VramOption,
    WorkersOption,
    all_asked,
    open_study,
    progress_on_stderr,
)
from paretune.harness.cli.options import DeviceText, OverridesArgument, TableFormat

if TYPE_CHECKING:
    from paretune.harness.question import Question
    from paretune.harness.records import Record

__all__ = ["command"]

_MOST_REFUSED = 8


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
    """Run every plan once and print the table; a file with `questions` gives a table each.

    Interrupting keeps everything; the same command goes on.
    """
    settings = {"device": device, "budget.device_memory": vram, "effort.workers": workers, "search.sampler": "grid"}
    made = all_asked(question, overrides or [], {**settings, "effort.max_trials": trials or 10**6})
    if format == "json" and len(made) > 1:
        records = [record for _, one in made for record in _swept(one.without_lifting(), output, storage)]
        _print(records, format, vram, is_mixed=True)
        return
    for title, one in made:
        records = _swept(one.without_lifting(), output, storage)
        if len(made) > 1 and format in ("text", "markdown"):
            sys.stdout.write(f"\n## {title}\n\n")
        _print(records, format, vram)
        if format in ("text", "markdown"):
            sys.stdout.writelines(_refused(one))
        sys.stdout.flush()


def _refused(made: Question) -> Iterator[str]:
    """What the rules refuse never ran and stands in no row: the first few, with their reasons."""
    refused = made.plans.refused
    for entry in refused[:_MOST_REFUSED]:
        yield f"\nrefused: {entry.settings}: {' '.join(entry.reasons)}\n"
    if len(refused) > _MOST_REFUSED:
        yield f"\nrefused: {len(refused) - _MOST_REFUSED} more; `paretune plan` lists them.\n"


def _swept(made: Question, output: Path, storage: str | None) -> list[Record]:
    from paretune.harness.runner import run_trial
    from paretune.harness.study import Study

    store, ledger = open_study(made, output, storage, run_trial)
    study = Study(question=made, store=store, ledger=ledger, run_trial=run_trial, progress=progress_on_stderr())
    result = study.run()
    print(f"{len(result.records)} plans, {result.num_run} run now, {made.plans.num_refused} refused.", file=sys.stderr)
    return list(result.records)


def _print(records: list[Record], format: str, vram: str | None, *, is_mixed: bool = False) -> None:
    from paretune.harness import report
    from paretune.harness.report.draw import draw_table

    table = report.rows(records, budget=vram, is_mixed_allowed=is_mixed)
    sys.stdout.write(draw_table(table, format_name=format, columns=None, budget=vram, techniques=False))
