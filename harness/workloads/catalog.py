"""Find a workload by what the user wrote: a shipped name, an architecture file, a checkpoint, or a function."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paretune.harness.workloads.architecture import load_architecture, shipped
from paretune.harness.workloads.base import Workload, WorkloadError
from paretune.harness.workloads.called import CalledWorkload
from paretune.harness.workloads.request import Request, read_request
from paretune.harness.workloads.sources import ArchitectureSource, Source

__all__ = ["workload_named", "workload_names"]

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_FUNCTION = re.compile(r".+:[A-Za-z_]\w*")


def workload_names() -> tuple[str, ...]:
    """Names of the workloads that come with the package, sorted; a `-tiny` one runs on a CPU in about a second."""
    return shipped()


def workload_named(workload: str | Mapping[str, Any]) -> Workload:
    """The workload of that name, path, hub id or `module:function`, with its overrides; imports no torch.

    Raises:
        WorkloadError: not found (with the nearest name), or an override that is unknown or out of range.
    """
    request = read_request(workload)
    return CalledWorkload(_source(request), request)


def _source(request: Request) -> Source:
    name = request.name
    if name in shipped() or name.endswith((".yaml", ".yml")):
        return ArchitectureSource(architecture=load_architecture(name), request=request)
    if Path(name).is_dir():
        from paretune.harness.workloads.checkpoint import CheckpointSource

        return CheckpointSource(request=request)
    if _FUNCTION.fullmatch(name):
        from paretune.harness.workloads.function import FunctionSource

        return FunctionSource(request=request)
    if _HUB_ID.fullmatch(name):
        from paretune.harness.workloads.checkpoint import CheckpointSource

        return CheckpointSource(request=request)
    near = difflib.get_close_matches(name, shipped(), n=1)
    hint = f"Did you mean {near[0]!r}?" if near else "`paretune list workloads` shows the shipped ones."
    raise WorkloadError(
        f"workload.name: {name!r} is no shipped workload, folder, architecture file (.yaml), hub id (owner/name) "
        f"or module:function. {hint}"
    )
