"""``paretune demo``: the main job on this machine, from question to proven answer, in a few minutes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paretune.harness.cli.answering import print_answer
from paretune.harness.cli.asking import asked, open_study, progress_on_stderr

__all__ = ["command"]

QUESTION, MEASURED = "demo", "demo-cpu"
"""The two questions, files of ``configs/``: a full-size model on a 12 GiB card, and its small sibling on this CPU."""


def command(
    output: Annotated[Path, typer.Option(help="Folder for records, figures and the page.")] = Path("demo-results"),
) -> None:
    """Tune FLUX.1-schnell for a 12 GiB card and measure its small sibling on the CPU; leaves tables, a plot and a page.

    Uses the accelerator if there is one and simulates a card of that size otherwise, and says which.
    """
    _tune(output / "tune")
    _sweep(output / "cpu")


def _tune(folder: Path) -> None:
    from paretune.harness import report
    from paretune.harness.report.draw import PLOTS, draw_table
    from paretune.harness.report.plots import save
    from paretune.harness.runner import run_trial
    from paretune.harness.tuning import tune

    question = asked(QUESTION, [], {})
    store, ledger = open_study(question, folder, None, run_trial)
    answer = tune(question, store=store, ledger=ledger, run_trial=run_trial, progress=progress_on_stderr())
    cap = f"{question.budget.device_memory}B"
    shown = [record for record in answer.records if not record.options.get("purpose")]
    sys.stdout.write(draw_table(report.rows(shown, budget=cap), budget=cap) + "\n")
    print_answer(answer, "text")
    print(f"\n{save(PLOTS['pareto'](shown, cap), folder.parent / 'pareto.png')}")
    _page(list(answer.records), cap, folder.parent / "report.html")


def _page(records: list[object], cap: str, target: Path) -> None:
    from paretune.harness.report.page import write_page

    print(write_page(records, target, budget=cap))  # type: ignore[arg-type]


def _sweep(folder: Path) -> None:
    from paretune.harness import report
    from paretune.harness.report.draw import draw_table
    from paretune.harness.runner import run_trial
    from paretune.harness.study import Study

    question = asked(MEASURED, [], {}).without_lifting()
    store, ledger = open_study(question, folder, None, run_trial)
    study = Study(question=question, store=store, ledger=ledger, run_trial=run_trial, progress=progress_on_stderr())
    records = list(study.run().records)
    sys.stdout.write("\n" + draw_table(report.rows(records)))
