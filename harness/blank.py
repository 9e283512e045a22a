"""A record that knows what was asked and how it ended, before or without anything measured."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from paretune.harness import environment
from paretune.harness.records import Kind, Outcome, Record, Trial
from paretune.harness.workloads.base import WorkloadError
from paretune.strategies.plan import Plan

__all__ = ["blank_record", "kind_of"]


def kind_of(trial: Trial) -> Kind:
    """What figures of this trial are: simulated, emulated (a large card held down to a cap) or measured."""
    if trial.device.startswith("sim"):
        return Kind.SIMULATED
    return Kind.EMULATED if trial.device_memory_bytes and trial.device != "cpu" else Kind.MEASURED


def blank_record(trial: Trial, *, kind: Kind, outcome: Outcome, reason: str | None) -> Record:
    """The record of ``trial`` with nothing measured in it."""
    return Record(
        key=trial.key(environment.versions()),
        kind=kind,
        outcome=outcome,
        reason=reason,
        workload=_resolved(trial.workload),
        device=trial.device,
        plan=trial.plan,
        is_lossy=_is_lossy(trial.plan),
        device_memory_bytes=trial.device_memory_bytes,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        options={name: value for name, value in trial.options.items() if name != "pilot"},
    )


def _is_lossy(plan: str) -> bool:
    try:
        return Plan.parse(plan).is_lossy
    except ValueError:
        return False


_SAID = ("height", "width", "num_frames", "steps", "batch_size", "seed")
"""Settings of the call that decide time and size; given back as overrides they change nothing."""


def _resolved(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was asked and the size of the call it came to; a trial of this mapping is the same trial again."""
    from paretune.harness.workloads import workload_named

    try:
        spec = workload_named(asked).spec
    except WorkloadError:
        return asked
    return {**asked, **{name: spec[name] for name in _SAID if spec.get(name) is not None}}
