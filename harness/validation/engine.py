"""Run every case that published rows ask for on the simulator, with the implementations that were measured."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from paretune.harness.records import Kind, Outcome, Peaks, Record
from paretune.harness.validation.applied_by_others import apply_technique
from paretune.harness.validation.compare import RowResult, compare, failed
from paretune.harness.validation.express import CannotExpress, Case, express
from paretune.harness.validation.parts import part_of
from paretune.harness.validation.rows import PublishedRow, read_rows
from paretune.harness.validation.summary import Report, summarise

__all__ = ["results_of", "simulate", "validate"]

ROOMY_BYTES = 400 << 30
"""Memory of a card that is not known, or that would refuse: a refusal says nothing about the peak."""

Progress = Callable[[str], None]


def validate(path: Path, *, families: Iterable[str] | None = None, progress: Progress = lambda _: None) -> Report:
    """Compare a table of published measurements with the simulator.

    `families` limits the rows by the first part of their ids. Raises `ValueError` for a file without the columns.
    """
    rows, refused = read_rows(path)
    return summarise(results_of(rows, families=families, progress=progress), unread=refused)


def results_of(
    rows: Iterable[PublishedRow], *, families: Iterable[str] | None = None, progress: Progress = lambda _: None
) -> Iterator[RowResult]:
    """Row after row, refused ones first, in no particular order otherwise; each case is simulated once."""
    wanted = set(families or ())
    chosen = [row for row in rows if not wanted or row.family in wanted]
    cases: dict[Case, list[PublishedRow]] = {}
    for row in chosen:
        try:
            cases.setdefault(express(row), []).append(row)
        except CannotExpress as error:
            yield failed(row, str(error), part=part_of(row))
    for number, (case, members) in enumerate(cases.items(), start=1):
        progress(f"{number}/{len(cases)} {_title(case)} on {case.gpu}: {members[0].strategy}")
        yield from _compared(case, members)


def _title(case: Case) -> str:
    return f"{case.workload} {dict((*case.overrides, *case.inputs))}"


def _compared(case: Case, members: list[PublishedRow]) -> list[RowResult]:
    record = simulate(case)
    name = f"{_title(case)} {case.gpu} {members[0].strategy}"
    if record.outcome is not Outcome.COMPLETE:
        return [failed(row, f"{record.outcome.value}: {record.reason}", part=part_of(row)) for row in members]
    return [compare(row, record, part=part_of(row), case=name, is_card_known=case.is_card_known) for row in members]


def simulate(case: Case) -> Record:
    """One warm-up and one measured call of the case on its card, or on a roomier one where that has not enough memory.

    A failure becomes a record with its reason.
    """
    if case.is_card_known:
        record = _simulated(case, "")
        if record.outcome is Outcome.COMPLETE:
            return record
    return _simulated(case, f",memory={ROOMY_BYTES}B")


def _simulated(case: Case, memory: str) -> Record:
    from paretune.harness.devices.simulated import SimulatedDevice

    host = f",host={case.host}" if case.host else ""
    spec = f"sim:{case.gpu}{memory}{host},host_memory={4 * ROOMY_BYTES}B"
    device = SimulatedDevice(spec)
    blank: dict[str, Any] = {
        "kind": Kind.SIMULATED,
        "workload": {"name": case.workload, **dict(case.overrides), **dict(case.inputs)},
        "device": spec,
        "plan": str(case.technique),
    }
    try:
        with tempfile.TemporaryDirectory() as folder, device.session() as session:
            measured = _measured(case, device, session, folder)
        phases = {name: phase for name, phase in session.phases().items() if name not in ("load", "prepare", "undo")}
        from dataclasses import asdict

        return Record(
            **blank, outcome=Outcome.COMPLETE, phases=phases, **asdict(Peaks.over(phases.values())), **measured
        )
    except Exception as error:
        return Record(**blank, outcome=Outcome.CRASHED, reason=f"{type(error).__name__}: {str(error)[:400]}")


def _called(case: Case) -> dict[str, Any]:
    """The workload to ask for; inputs of other shapes than its own are made here, in its dtype."""
    import torch

    from paretune.harness.workloads.architecture import load_architecture

    asked: dict[str, Any] = {"name": case.workload, **dict(case.overrides)}
    if case.inputs:
        dtype = getattr(torch, load_architecture(case.workload).dtype)
        asked["call"] = {name: torch.randn(shape, dtype=dtype) for name, shape in case.inputs}
    return asked


class _Observing:
    """Passes phases and steps of the workload on to the session."""

    def __init__(self, session: Any) -> None:
        self.phase, self.step = session.mark, session.step


def _measured(case: Case, device: Any, session: Any, folder: str) -> dict[str, Any]:
    import torch

    from paretune.harness.workloads import workload_named

    workload = workload_named(_called(case))
    session.mark("load")
    loaded = workload.load()
    session.watch(loaded)
    session.mark("prepare")
    observer = _Observing(session)
    with torch.no_grad(), apply_technique(loaded, case.technique, device.torch_device, folder):
        workload.run(loaded, device=device.torch_device, observer=observer)
        session.start_call()
        before = session.now_s()
        workload.run(loaded, device=device.torch_device, observer=observer)
        seconds = session.now_s() - before
        steps = session.step_latency_s()
        session.mark("undo")
        del loaded
    return {"latency_s": (seconds,), "step_latency_s": steps}
