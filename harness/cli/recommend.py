"""``paretune recommend``: which plan to use in a given amount of device memory, from records or by simulating first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paretune.harness.cli.answering import print_answer
from paretune.harness.cli.asking import OutputOption, TrialsOption, VramOption, asked, open_study, progress_on_stderr
from paretune.harness.cli.options import DeviceText, FormatOption, OverridesArgument
from paretune.harness.usage import UsageError

if TYPE_CHECKING:
    from paretune.harness.tuning import Answer

__all__ = ["command"]

_NUM_SIMULATED, _PATIENCE = 40, 15
"""Trials of a simulated search at most, and in a row without a gain; a ladder asks for many sizes and uses them all."""


def command(
    workload: Annotated[
        str | None, typer.Argument(help="Workload or question; may be left out where the records hold only one.")
    ] = None,
    overrides: OverridesArgument = None,
    vram: VramOption = None,
    device: Annotated[str | None, typer.Option(help=f"Where it must fit: {DeviceText}.")] = None,
    ladder: Annotated[bool, typer.Option("--ladder", help="Answer 6, 8, 10, 12, 16, 24, 32, 48 and 80 GiB.")] = False,
    allow_lossy: Annotated[
        bool | None, typer.Option("--allow-lossy", help="Plans that may change the output may win.")
    ] = None,
    trials: TrialsOption = None,
    export: Annotated[
        Path | None,
        typer.Option(help="Folder for the answer as YAML, Python and plain diffusers where it can be said."),
    ] = None,
    records: OutputOption = Path("paretune-results"),
    format: FormatOption = "text",
) -> None:
    """Recommend a plan and say why; simulates first where no record answers.

    Nothing fits is an answer too: it names the closest plan and what is missing.
    """
    answer = _answer(
        workload or _only_workload(records), overrides or [], vram, device, ladder, allow_lossy, trials, records
    )
    if export is not None:
        from paretune.harness.export import write_exports

        for path in write_exports(answer, export):
            print(path, file=sys.stderr)
    print_answer(answer, format)


def _answer(*told: object) -> Answer:
    from paretune.harness.runner import run_trial
    from paretune.harness.spec import LADDER
    from paretune.harness.store import Store
    from paretune.harness.tuning import answer_from, tune

    workload, overrides, vram, device, ladder, allow_lossy, trials, records = told
    settings = {
        "budget.device_memory": vram,
        "device": device,
        "ladder": f"[{', '.join(LADDER)}]" if ladder else None,
        "allow_lossy": "true" if allow_lossy else None,
        "effort.max_trials": trials or _NUM_SIMULATED,
        "effort.patience": None if ladder or trials else _PATIENCE,
    }
    made = asked(str(workload), overrides, settings)  # type: ignore[arg-type]
    if made.is_simulated:
        made = made.with_workers(2)
    store = Store(Path(str(records)))
    known = answer_from(made, store)
    is_exhausted = len({record.plan for record in known.records}) >= len(made.plans.feasible)
    if trials is None and (known.recommendation.chosen is not None or is_exhausted):
        return answer_from(made, store, run_trial=run_trial)
    store, ledger = open_study(made, Path(str(records)), None, run_trial)
    return tune(made, store=store, ledger=ledger, run_trial=run_trial, progress=progress_on_stderr())


def _only_workload(records: Path) -> str:
    from paretune.harness.store import Store

    names = sorted({str(record.workload.get("name")) for record in Store(records).records()})
    if len(names) == 1:
        return names[0]
    found = f"the records hold {', '.join(names)}" if names else f"there are no records in {records}"
    raise UsageError(f"WORKLOAD is missing and {found}. Name one: `paretune recommend flux.1-schnell --vram 12GiB`.")
