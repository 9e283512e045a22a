"""``paretune explain``: what stands in memory at the peak of a plan, and which operator of which module reached it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
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
    timeline: Annotated[
        Path | None, typer.Option(help="Draw memory over one call into this .png, .svg or .pdf.")
    ] = None,
    snapshot: Annotated[
        Path | None, typer.Option(help="Write what the allocator did into this .pickle for pytorch.org/memory_viz.")
    ] = None,
    format: FormatOption = "text",
) -> None:
    """Explain a peak. Only a simulated card knows who holds each byte, so the device must be one."""
    if not device.startswith("sim:"):
        raise UsageError(f"--device {device}: only simulated cards know who holds each byte. Write sim:NAME.")
    asked = checked_workload(workload_of(workload, overrides or []))
    _refuse_other_suffixes(timeline, snapshot)
    record = _explained(Trial(workload=asked, device=checked_device(device), plan=checked_plan(plan)), snapshot)
    told = record.counters.get("explain")
    if told is None:
        raise UsageError(f"the trial ended as {record.outcome}: {record.reason}")
    if timeline is not None:
        _draw(record, timeline)
    print(json.dumps(told, indent=1) if format == "json" else "\n".join(lines(record, phase)))


def _refuse_other_suffixes(timeline: Path | None, snapshot: Path | None) -> None:
    """Before the trial runs, so that nobody waits for a file that cannot be written."""
    from paretune.harness.report.plots.style import PLOT_FORMATS

    if timeline is not None and timeline.suffix.removeprefix(".").lower() not in PLOT_FORMATS:
        raise UsageError(f"--timeline {timeline}: figures are saved as {', '.join(PLOT_FORMATS)}. Give such a suffix.")
    if snapshot is not None and snapshot.suffix != ".pickle":
        raise UsageError(f"--snapshot {snapshot}: the visualiser reads pickles. Give the file the suffix .pickle.")


def _explained(trial: Trial, snapshot: Path | None) -> Record:
    """The trial's record; with a snapshot it runs in this process, whose allocator is then recorded."""
    if snapshot is None:
        from paretune.harness.runner import run_trial

        return run_trial(trial)
    from paretune.harness.perform import perform
    from paretune.harness.simulator.snapshot import recording, write_snapshot

    with recording() as recorder:
        record = perform(trial, lambda phase: None)
    write_snapshot(recorder.snapshot(), snapshot)
    return record


def _draw(record: Record, path: Path) -> None:
    from paretune.harness.report.plots import save, timeline_plot

    try:
        figure = timeline_plot(record.counters["memory_timeline"], f"{record.plan} on {record.device}: simulated.")
    except ValueError as error:
        raise UsageError(f"--timeline {path}: {error}.") from error
    save(figure, path)


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
