"""Check what the user asked for before a process is started for it; the same words as everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["checked_device", "checked_plan", "checked_workload"]


def checked_plan(text: str) -> str:
    """The plan in its one spelling. Raises ``PlanError``."""
    from paretune.strategies.plan import Plan

    return str(Plan.parse(text))


def checked_workload(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same, once it is known that it can be found. Raises ``WorkloadError``."""
    from paretune.harness.workloads import workload_named

    workload_named(asked)
    return asked


def checked_device(spec: str) -> str:
    """The device, ``auto`` resolved and said on standard error. Raises ``DeviceError`` for what cannot be one."""
    from paretune.harness.devices.names import device_named, resolve_auto

    if spec == "auto":
        spec, sentence = resolve_auto()
        print(sentence, file=sys.stderr)
    device_named(spec)
    return spec
