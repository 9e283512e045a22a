"""Carry out one trial in this process: load, apply, warm up, measure, undo, check what came out and what stayed."""

from __future__ import annotations

import dataclasses
import gc
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paretune.harness import environment, health, outputs, restored
from paretune.harness.advice import advise
from paretune.harness.blank import blank_record, kind_of
from paretune.harness.constraints import need_of
from paretune.harness.devices.base import Device, Session
from paretune.harness.devices.names import device_named
from paretune.harness.failures import classify, oom_sizes
from paretune.harness.fidelity import compare
from paretune.harness.measure import Timed, measure
from paretune.harness.pilot import OPTION, PILOT, Pilot, Stopped
from paretune.harness.records import RUN_PHASES_EXCLUDE, Outcome, Peaks, Phase, Procedure, Record, Trial
from paretune.harness.workloads import Workload, workload_named
from paretune.strategies import Applied

__all__ = ["Progress", "perform"]

Progress = Callable[[str], None]
"""Is told each phase as it begins, so that a process that dies leaves word of where it stood."""


@dataclasses.dataclass
class _Seen:
    """What one pass over the workload brought to light, filled in as it goes so that a failure keeps the rest.

    standing: the phase of the workload that began last, hence the one in which a failure happened.
    """

    phases: dict[str, Phase] = dataclasses.field(default_factory=dict)
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    output: Any = None
    standing: str | None = None


def perform(trial: Trial, progress: Progress, workload: Workload | None = None) -> Record:
    """Measure ``trial``; every failure of the plan becomes an outcome. Raises only ``KeyboardInterrupt`` and the like.

    ``workload`` is taken in place of the one that the trial names, for pipelines that exist only in this process.
    """
    device, seen = device_named(trial.device), _Seen()
    record = blank_record(trial, kind=kind_of(trial), outcome=Outcome.COMPLETE, reason=None)
    try:
        run = workload or workload_named(trial.workload)
        watch = _Pass(device=device, workload=run, seen=seen, progress=progress)
        if device.memory_pass:
            watch.over(_once(trial), memory=True)
        watch.over(trial, memory=not device.memory_pass)
    except Stopped as stop:
        record = _stopped(trial, stop, seen)
    except Exception as error:
        seen.fields |= _failed(error)
    return _complete(record, trial, device, seen)


def _stopped(trial: Trial, stop: Stopped, seen: _Seen) -> Record:
    """A record of its own identity: what a few steps showed answers no question about a full call."""
    seen.phases = {name: dataclasses.replace(phase, duration_s=None) for name, phase in seen.phases.items()}
    kept: dict[str, Any] = {name: seen.fields[name] for name in ("facts", "counters", "load_s") if name in seen.fields}
    seen.fields = {**kept, "facts": {**kept.get("facts", {}), PILOT: stop.told}}  # seconds of a tracing pass are none
    short = dataclasses.replace(trial, options={"purpose": PILOT})
    return blank_record(short, kind=kind_of(trial), outcome=Outcome.STOPPED, reason=str(stop))


def _failed(error: Exception) -> dict[str, Any]:
    import traceback

    outcome, reason = classify(error)
    fields: dict[str, Any] = {"outcome": outcome, "reason": reason}
    if outcome is Outcome.OOM:
        fields["oom"] = oom_sizes(error)
    if outcome is Outcome.CRASHED:
        fields["reason"] = f"{reason}\n{''.join(traceback.format_exception(error))[-4000:]}"
    return fields


def _once(trial: Trial) -> Trial:
    """The pass that traces memory is slow: one call, and no pilot, whose seconds would mean nothing."""
    options = {name: value for name, value in trial.options.items() if name != OPTION}
    procedure = dataclasses.replace(trial.procedure, num_warmup=0, min_iterations=1, max_iterations=1)
    return dataclasses.replace(trial, procedure=procedure, options=options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pass:
    """One way through load, apply, measure and undo, inside one session of the device."""

    device: Device
    workload: Workload
    seen: _Seen
    progress: Progress

    def over(self, trial: Trial, *, memory: bool) -> None:
        """Measure; phases are kept also when it fails half way, and read again once the session has settled."""
        seen, opened, before = self.seen, None, health.counters()
        try:
            with self.device.session(memory=memory, device_memory_bytes=trial.device_memory_bytes) as session:
                opened = session
                try:
                    _inside(trial, self.device, self.workload, seen, _Watching(session, self.progress, seen))
                finally:
                    _merge(seen, session.phases())
        finally:
            if opened is not None:
                _merge(seen, opened.phases())
                felt = health.disturbance(before, health.counters()) if self.device.has_data else {}
                seen.fields["counters"] = {**seen.fields.get("counters", {}), **opened.counters(), **felt}


class _Watching:
    """Passes a workload's phases and steps on to the session and to whoever follows the trial."""

    def __init__(self, session: Session, progress: Progress, seen: _Seen) -> None:
        self.session, self._progress, self._seen = session, progress, seen

    def phase(self, name: str) -> None:
        self._progress(name)
        self._seen.standing = name
        self.session.mark(name)

    def leave(self) -> None:
        """The workload is done, or failed: what follows, such as undoing the plan, belongs to none of its phases."""
        self._progress(_AFTERWARDS)
        self.session.mark(_AFTERWARDS)

    def step(self) -> None:
        self.session.step()


def _inside(trial: Trial, device: Device, workload: Workload, seen: _Seen, watching: _Watching) -> None:
    session, began, compiled_s = watching.session, time.perf_counter(), _compile_seconds()
    watching.phase("load")
    loaded = workload.load()
    session.watch(loaded)
    seen.fields["load_s"] = time.perf_counter() - began
    before = restored.look(loaded)
    watching.phase("prepare")
    with Applied(trial.plan, loaded, device.torch_device) as applied:
        seen.fields["facts"] = dict(applied.facts)
        try:
            _try_first(trial, device, workload, seen, (watching, loaded))
            timed = measure(
                lambda: workload.run(loaded, device=device.torch_device, observer=watching),
                session,
                trial.procedure,
                once=device.is_deterministic,
            )
        finally:
            watching.leave()
        seen.standing = _AFTERWARDS
        _note(seen, session, timed, device)
        seen.fields["compile_s"] = _compile_seconds() - compiled_s or None
    gc.collect()
    left = restored.differences(before, restored.look(loaded))
    if left:
        seen.fields["facts"] = {**seen.fields["facts"], "not_restored": left[:20]}


def _try_first(trial: Trial, device: Device, workload: Workload, seen: _Seen, standing: tuple[_Watching, Any]) -> None:
    """The pilot that a trial asks for, where its call has a shorter one. Raises ``Stopped``."""
    pilot, (watching, loaded) = Pilot.of(trial.options), standing
    num_steps = workload.spec.get("steps")
    if pilot is None or not isinstance(num_steps, int) or not pilot.is_worth_it(num_steps):
        return
    short = workload.with_steps(pilot.num_steps)
    if short is None:
        return
    session, once = watching.session, Procedure(num_warmup=1, min_iterations=1, max_iterations=1)
    timed = measure(lambda: short.run(loaded, device=device.torch_device, observer=watching), session, once)
    blank = blank_record(trial, kind=kind_of(trial), outcome=Outcome.COMPLETE, reason=None)
    need = need_of(dataclasses.replace(blank, phases={**seen.phases, **session.phases()}))
    told = pilot.judge(timed.latency_s[0], session.step_latency_s(), num_steps, need.total_bytes if need else None)
    seen.fields["facts"] = {**seen.fields["facts"], PILOT: told}


def _note(seen: _Seen, session: Session, timed: Timed, device: Device) -> None:
    seen.fields |= {
        "latency_s": timed.latency_s,
        "warmup_s": timed.warmup_s,
        "first_call_s": timed.warmup_s[0] if timed.warmup_s and PILOT not in seen.fields["facts"] else None,
        "step_latency_s": session.step_latency_s(),
        "transfers": session.transfers(),
        "uncertainty": session.uncertainty(),
    }
    if device.has_data:
        seen.output = (outputs.flatten(timed.first_output), outputs.flatten(timed.last_output))


def _compile_seconds() -> float:
    """What this process has spent compiling so far; a pass of a trial compiles for itself."""
    if "torch._dynamo.utils" not in sys.modules:
        return 0.0
    metrics = sys.modules["torch._dynamo.utils"].compilation_time_metrics
    return float(sum(metrics.get("_compile.compile_inner", ())))


def _merge(seen: _Seen, phases: Mapping[str, Phase]) -> None:
    """Figures of a later pass win where it has them: the tracing pass knows bytes, the timing pass seconds."""
    for name, phase in phases.items():
        known = dataclasses.asdict(seen.phases.get(name, Phase()))
        told = {key: value for key, value in dataclasses.asdict(phase).items() if value is not None}
        seen.phases[name] = Phase(**{**known, **told})


def _complete(record: Record, trial: Trial, device: Device, seen: _Seen) -> Record:
    seen.phases.pop(_AFTERWARDS, None)
    running = [phase for name, phase in seen.phases.items() if name not in RUN_PHASES_EXCLUDE]
    fields = seen.fields | dataclasses.asdict(Peaks.over(running)) | {"phases": dict(seen.phases)}
    if fields.get("oom") is not None:
        fields["oom"] = {**fields["oom"], "phase": seen.standing}
    fields["environment"] = {**environment.describe(), "device": _facts(device)}
    record = dataclasses.replace(record, **fields)
    if record.is_complete and seen.output is not None:
        record = _judge(record, trial, seen.output)
    return dataclasses.replace(record, advice=tuple(advise(record)))


def _facts(device: Device) -> Mapping[str, Any]:
    try:
        return device.facts()
    except Exception as error:
        return {"unknown": str(error)}


def _judge(record: Record, trial: Trial, output: tuple[Mapping[str, Any], Mapping[str, Any]]) -> Record:
    first, last = output
    counters = {**record.counters, "output_hash": outputs.digest(last)}
    record = dataclasses.replace(record, counters=counters)
    path = Path(trial.reference) if trial.reference else None
    reference = outputs.load(path) if path is not None and path.exists() else None
    if path is not None and reference is None:
        outputs.save(last, path)
    fidelity = compare(last, reference if reference is not None else first)
    fidelity = {**fidelity, "against": "reference plan" if reference is not None else "its own first call"}
    wrong = _wrong(record, fidelity)
    outcome = Outcome.WRONG_OUTPUT if wrong else record.outcome
    return dataclasses.replace(record, fidelity=fidelity, outcome=outcome, reason=wrong or record.reason)


def _wrong(record: Record, fidelity: Mapping[str, Any]) -> str | None:
    if not fidelity["is_finite"]:
        return "the output holds NaN or infinity where the reference holds none. Do not use this plan."
    if fidelity["is_blank"]:
        return "the output is one flat value (a black picture) where the reference is not. Do not use this plan."
    if not record.is_lossy and not fidelity["is_exact"] and fidelity["relative_l2"] > _EXACT_TOLERANCE:
        return f"a plan that must not change the output changed it: relative L2 {fidelity['relative_l2']:.2e}."
    return None


_AFTERWARDS = "undo"

_EXACT_TOLERANCE = 1e-3
"""Kernels may round differently between calls on a GPU; beyond this an exact plan computed something else."""
