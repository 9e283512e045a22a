"""``paretune list``: what there is to choose from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from paretune.harness.cli.options import FormatOption

__all__ = ["Topic", "command", "entries"]


class Topic(StrEnum):
    """What can be listed."""

    STRATEGIES = "strategies"
    ATTENTION = "attention"
    WORKLOADS = "workloads"
    DEVICES = "devices"


def command(
    topic: Annotated[Topic, typer.Argument(help="strategies, attention, workloads or devices.")],
    format: FormatOption = "text",
) -> None:
    """List strategies, attention backends, workloads or devices."""
    found = entries(topic)
    print(json.dumps(found, indent=2) if format == "json" else _table(found))


def entries(topic: Topic) -> list[dict[str, Any]]:
    """One mapping per thing, JSON values only, in the order they are shown."""
    ask: Mapping[Topic, Callable[[], list[dict[str, Any]]]] = {
        Topic.STRATEGIES: _strategies,
        Topic.ATTENTION: _attention,
        Topic.WORKLOADS: _workloads,
        Topic.DEVICES: _devices,
    }
    return ask[topic]()


def _strategies() -> list[dict[str, Any]]:
    import dataclasses

    from paretune.strategies import ComponentStrategy, registry

    found = []
    for name, cls in registry().items():
        parameters = {f.name: list(map(str, f.metadata.get("choices", ()))) for f in dataclasses.fields(cls)}
        roles = list(cls.roles) if issubclass(cls, ComponentStrategy) else ["pipeline"]
        first_line = (cls.__doc__ or "").strip().splitlines()[0]
        found.append(
            {
                "name": name,
                "output": "may change" if cls.changes_output else "exact",
                "for": roles,
                "what": first_line,
                "parameters": parameters,
            }
        )
    return found


def _attention() -> list[dict[str, Any]]:
    from paretune.attention import catalog

    return [
        {
            "name": name,
            "library": entry.library,
            "output": entry.exactness,
            "devices": list(entry.devices),
            "packages": [str(package) for package in entry.packages],
            "what": entry.summary,
        }
        for name, entry in catalog().items()
    ]


def _workloads() -> list[dict[str, Any]]:
    from paretune.harness.workloads import workload_named, workload_names

    keys = ("pipeline", "dtype", "height", "width", "num_frames", "steps")
    specs = {name: workload_named(name).spec for name in workload_names()}
    return [{"name": name, **{key: spec.get(key) for key in keys}} for name, spec in specs.items()]


def _devices() -> list[dict[str, Any]]:
    from paretune.harness.simulator.sheets import gpu_names, load_gpu
    from paretune.strategies.sizes import format_gib

    here: list[dict[str, Any]] = [{"name": "cpu", "kind": "measured", "memory": "the machine's"}]
    here += [{"name": str(device), "kind": "measured", "memory": memory} for device, memory in _accelerators()]
    simulated = [
        {"name": f"sim:{name}", "kind": "simulated", "memory": format_gib(load_gpu(name).memory_bytes)}
        for name in gpu_names()
    ]
    return here + simulated


def _accelerators() -> Sequence[tuple[str, str]]:
    import torch

    from paretune.strategies.sizes import format_gib

    if not torch.accelerator.is_available():
        return ()
    kind = torch.accelerator.current_accelerator()
    totals = [torch.accelerator.get_memory_info(i)[1] for i in range(torch.accelerator.device_count())]
    return [(f"{kind}:{index}", format_gib(total)) for index, total in enumerate(totals)]


def _table(found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return "none"
    shown = [name for name in found[0] if name != "parameters"]
    cells = [[_text(entry.get(name)) for name in shown] for entry in found]
    widths = [max(len(row[i]) for row in [shown, *cells]) for i in range(len(shown))]
    lines = [shown, ["-" * width for width in widths], *cells]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
