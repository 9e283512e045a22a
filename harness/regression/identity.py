"""Which records belong together, and whether their figures may be compared at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from paretune.harness.records import Kind, Record

__all__ = ["fingerprint", "foreign_because", "identity", "name_of"]

_DECISIVE = ("torch", "diffusers", "transformers", "accelerate")
"""Libraries whose minor version decides which operators run."""


def identity(record: Record) -> str:
    """What was run: workload, device, plan, cap, options; not the versions, which are what a comparison is about."""
    options = {key: value for key, value in record.options.items() if key != "isolation"}
    asked = [dict(record.workload), record.device, record.plan, record.device_memory_bytes, options]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:16]


def name_of(record: Record) -> str:
    """The same for people."""
    cap = "" if record.device_memory_bytes is None else f" cap {record.device_memory_bytes / 2**30:g} GiB"
    return f"{record.workload.get('name', 'workload')} on {record.device}{cap}: {record.plan}"


def fingerprint(record: Record) -> dict[str, str]:
    """The stable facts on which bytes and counts depend; those of a simulated record depend on no machine."""
    environment = record.environment
    versions = environment.get("versions", {})
    found = {name: _minor(str(versions[name])) for name in _DECISIVE if name in versions}
    if record.kind is Kind.SIMULATED:
        return found
    settings = environment.get("settings", {})
    machine = {name: str(environment[name]) for name in ("processor", "num_cores") if name in environment}
    threads = {"OMP_NUM_THREADS": str(settings.get("OMP_NUM_THREADS", "unset"))}
    return found | machine | threads | dict(_device(environment.get("device", {})))


def foreign_because(baseline: Record, head: Record) -> str | None:
    """Why figures of the two must not be compared, ``None`` when they may be."""
    if baseline.kind is not head.kind:
        return f"the baseline is {baseline.kind}, this is {head.kind}"
    ours, theirs = fingerprint(baseline), fingerprint(head)
    if not ours:
        return "the baseline does not say on which versions it was made"
    moved = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    differing = [f"{name} {ours.get(name, 'absent')} -> {theirs.get(name, 'absent')}" for name in moved]
    return f"made elsewhere: {', '.join(differing)}" if differing else None


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def _device(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("name", "memory_bytes", "compute_capability", "num_threads"):
        if name in facts:
            yield name, str(facts[name])
    if "driver" in facts:
        yield "driver", str(facts["driver"]).split(".")[0]
