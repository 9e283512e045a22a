"""``paretune run``: measure one plan in a process of its own and print its record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from paretune.harness.cli.options import DeviceOption, FormatOption, OverridesArgument, workload_of
from paretune.harness.records import Outcome, Procedure, Record, Trial

__all__ = ["command"]


def command(
    workload: Annotated[
        str, typer.Argument(help="Shipped name, architecture file, folder, hub id or module:function.")
    ],
    overrides: OverridesArgument = None,
    plan: Annotated[str, typer.Option(help="The plan, as plans are written; `resident` changes nothing.")] = "resident",
    device: DeviceOption = "auto",
    cap: Annotated[
        str | None, typer.Option(help="Device memory it may use, such as 12GiB; all of it by default.")
    ] = None,
    iterations: Annotated[int, typer.Option(min=1, help="Timed calls at least.")] = Procedure.min_iterations,
    timeout: Annotated[float, typer.Option(help="Seconds after which the trial is ended.")] = Procedure.timeout_s,
    store: Annotated[Path | None, typer.Option(help="Folder or .jsonl file to append the record to.")] = None,
    spawn: Annotated[
        bool, typer.Option("--spawn", help="Start a new interpreter instead of forking a warm one.")
    ] = False,
    format: FormatOption = "text",
) -> None:
    """Measure one plan. Exits 0 when it completed, 1 when it did not; the record says why."""
    from paretune.harness.runner import run_trial

    trial = _trial(workload, overrides or [], plan, device, cap, iterations, timeout)
    record = run_trial(trial, isolation="spawn" if spawn else "fork_server")
    if store is not None:
        from paretune.harness.store import Store

        Store(store).append(record)
    _print(record, format)
    raise typer.Exit(0 if record.outcome is Outcome.COMPLETE else 1)


def _trial(*asked: Any) -> Trial:
    from paretune.harness.cli.checked import checked_device, checked_plan, checked_workload
    from paretune.strategies.sizes import parse_size

    workload, overrides, plan, device, cap, iterations, timeout = asked
    procedure = Procedure(
        min_iterations=iterations, max_iterations=max(iterations, Procedure.max_iterations), timeout_s=timeout
    )
    return Trial(
        workload=checked_workload(workload_of(workload, overrides)),
        device=checked_device(device),
        plan=checked_plan(plan),
        procedure=procedure,
        device_memory_bytes=parse_size(cap, name="--cap") if cap else None,
    )


def _print(record: Record, format: str) -> None:
    if format == "json":
        print(record.to_json())
        return
    from paretune.harness import report

    print(report.text(report.rows([record])))
    for name, phase in record.phases.items():
        print(f"  {name:<8}" + _phase(phase))
    for sentence in record.advice:
        print(f"note: {sentence}")


def _phase(phase: Any) -> str:
    from paretune.harness.report.units import gib

    seconds = f"{phase.duration_s:9.3f} s" if phase.duration_s is not None else " " * 11
    peaks = [("allocated", phase.peak_allocated_bytes), ("reserved", phase.peak_reserved_bytes)]
    peaks += [("host", phase.peak_host_bytes), ("pinned", phase.pinned_bytes)]
    return seconds + "".join(f"  {word} {gib(value)} GiB" for word, value in peaks if value is not None)
