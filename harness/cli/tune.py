"""``paretune tune``: search for the fastest plan under a memory cap, and prove the answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paretune.harness.cli.answering import print_answer
from paretune.harness.cli.asking import (
    OutputOption,
    QuestionArgument,
    SamplerOption,
    StorageOption,
    TrialsOption,
    VramOption,
    WorkersOption,
    asked,
    open_study,
    progress_on_stderr,
)
from paretune.harness.cli.options import DeviceText, FormatOption, OverridesArgument

__all__ = ["command"]


def command(
    question: QuestionArgument,
    overrides: OverridesArgument = None,
    device: Annotated[str | None, typer.Option(help=f"Where to run: {DeviceText}.")] = None,
    vram: VramOption = None,
    trials: TrialsOption = None,
    sampler: SamplerOption = None,
    allow_lossy: Annotated[
        bool | None, typer.Option("--allow-lossy", help="Plans that may change the output may win.")
    ] = None,
    workers: WorkersOption = None,
    storage: StorageOption = None,
    output: OutputOption = Path("paretune-results"),
    format: FormatOption = "text",
) -> None:
    """Search, verify, answer. Interrupting keeps everything; the same command goes on."""
    from paretune.harness.runner import run_trial
    from paretune.harness.storage import masked
    from paretune.harness.tuning import tune

    settings = {
        "device": device,
        "budget.device_memory": vram,
        "effort.max_trials": trials,
        "effort.workers": workers,
        "search.sampler": sampler,
        "allow_lossy": "true" if allow_lossy else None,
    }
    made = asked(question, overrides or [], settings)
    store, ledger = open_study(made, output, storage, run_trial)
    if storage is not None:
        name = ledger.study.study_name
        print(f"to join: paretune worker --storage '{masked(storage)}' --study '{name}'", file=sys.stderr)
    answer = tune(made, store=store, ledger=ledger, run_trial=run_trial, progress=progress_on_stderr())
    if answer.study is not None:
        print(f"stopped: {answer.study.stopped}.", file=sys.stderr)
    print_answer(answer, format)
