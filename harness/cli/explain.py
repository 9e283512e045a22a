"""``paretune explain``: what stands in memory at the peak of a plan, and which operator of which module reached it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from paretune.harness.cli.checked import checked_device, checked_plan, checked_workload
from paretune.harness.cli.options import DeviceOption, FormatOption, OverridesArgument, workload_of
from paretune.harness.records import Record, Trial
from paretune.harness.usage import UsageError

__all__ = ["command", "lines"]


def command(
    workload: Annotated[
        str, typer.Argument(help="Shipped name, architecture file, folder, hub id or module:function.")
    ],
    overrides: OverridesArgument = None,
    plan: Annotated[str, typer.Option(help="The plan, as plans are written.")] = "resident",
    device: DeviceOption = "sim:rtx-4090,memory=1TiB",
    phase: Annotated[str | None, typer.Option(help="The peak of this phase instead of the highest.")] = None,
    format: FormatOption = "text",
) -> None:
    """Explain a peak. Only a simulated card knows who holds each byte, so the device must be one."""
    from paretune.harness.runner import run_trial

    if not device.startswith("sim:"):
        raise UsageError(f"--device {device}: only simulated cards know who holds each byte. Write sim:NAME.")
    asked = checked_workload(workload_of(workload, overrides or []))
    record = run_trial(Trial(workload=asked, device=checked_device(device), plan=checked_plan(plan)))
    told = record.counters.get("explain")
    if told is None:
        raise UsageError(f"the trial ended as {record.outcome}: {record.reason}")
    print(json.dumps(told, indent=1) if format == "json" else "\n".join(lines(record, phase)))


def lines(record: Record, phase: str | None = None) -> Iterator[str]:
    """The explanation of every memory of ``record``. Raises ``UsageError`` for a phase that it did not pass through."""
    yield f"{record.plan} on {record.device}: simulated."
    for place, told in record.counters["explain"].items():
        if not told["phases"]:
            continue
        if phase is not None and phase not in told["phases"]:
            raise UsageError(f"--phase {phase}: the call passed through {', '.join(told['phases'])}.")
        yield ""
        yield from _peak(place, phase or told["phase"], told["phases"][phase] if phase else told)


def _peak(place: str, phase: str, told: Mapping[str, Any]) -> Iterator[str]:
    from paretune.strategies.sizes import format_gib

    reached = f", reached by {told['operator']}" if told["operator"] else ""
    where = f" in {told['module']}" if told["module"] else ""
    yield f"{place}: {format_gib(told['total_bytes'])} in phase {phase}{reached}{where}"
    for entry in told["alive"]:
        yield f"  {format_gib(entry['bytes']):>10}  {entry['kind']:<12}{entry['component'] or '-'}"
