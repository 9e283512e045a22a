"""``paretune calibrate``: measure a card and its host, and write the sheets that ``sim:`` computes with."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paretune.harness.cli.options import DeviceText
from paretune.harness.usage import UsageError

if TYPE_CHECKING:
    from paretune.harness.calibration import Calibration

__all__ = ["command"]


def command(
    device: Annotated[str, typer.Option(help=f"What to measure: {DeviceText}.")] = "cuda",
    name: Annotated[str | None, typer.Option(help="Name of the sheets; by default made from the card's.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for the two sheets.")] = Path("paretune-results/gpus"),
    records: Annotated[
        Path | None, typer.Option(help="Trials measured on this card; they correct the sheet further.")
    ] = None,
) -> None:
    """Measure product rates, bandwidth, links, overheads and attention kernels; takes about a minute on a card."""
    made = _measure(device, name)
    if records is not None:
        made = _refined(made, records, output)
    gpu, host = made.write(output)
    print(f"{gpu}\n{host}")
    print(f"use them: --device sim:{gpu},host={host}", file=sys.stderr)


def _measure(device: str, name: str | None) -> Calibration:
    from paretune.harness.calibration import calibrate
    from paretune.harness.devices import device_named

    chosen = device_named(device)
    chosen.facts()
    with chosen.session() if not chosen.has_data else contextlib.nullcontext():
        return calibrate(chosen.torch_device, name=name, say=lambda text: print(f"measuring {text}", file=sys.stderr))


def _refined(made: Calibration, records: Path, output: Path) -> Calibration:
    import dataclasses

    from paretune.harness.calibration.refine import refine
    from paretune.harness.records import Record, Trial
    from paretune.harness.runner import run_trial
    from paretune.harness.store import Store

    gpu, host = made.write(output)

    def simulate(record: Record) -> Record:
        return run_trial(Trial(workload=record.workload, device=f"sim:{gpu},host={host}", plan=record.plan))

    try:
        found = refine(made.gpu, Store(records).records(), simulate)
    except ValueError as error:
        raise UsageError(f"--records {records}: {error}") from error
    print(f"{found.num_trials} trials: product efficiency times {found.factor:.3f}", file=sys.stderr)
    return dataclasses.replace(made, gpu=found.sheet)
