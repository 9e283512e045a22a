"""``paretune doctor``: what this machine can run, and what to install for the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from paretune.harness.cli.options import FormatOption

__all__ = ["command", "examine"]


def command(
    device: Annotated[str, typer.Option(help="Device to ask about: cuda, cpu, sim:NAME, or auto.")] = "auto",
    format: FormatOption = "text",
) -> None:
    """Tell for every attention backend and optional package yes, or the one reason why not and what to install."""
    found = examine(device)
    print(json.dumps(found, indent=2) if format == "json" else _text(found))


def examine(device: str) -> dict[str, Any]:
    """Machine, device, packages, attention backends and quantisation libraries, JSON values only."""
    from contextlib import nullcontext

    from paretune.harness import environment
    from paretune.harness.devices.names import device_named, resolve_auto

    spec, sentence = resolve_auto() if device == "auto" else (device, "")
    chosen = device_named(spec)
    session = nullcontext() if chosen.has_data else chosen.session()
    with session:
        backends = _attention(str(chosen.torch_device))
    return {
        "device": {"name": spec, "note": sentence, "facts": dict(chosen.facts())},
        "machine": environment.describe(),
        "packages": _packages(),
        "attention": backends,
    }


def _attention(device: str) -> dict[str, str]:
    from paretune.attention import availability, catalog

    return {name: str(availability(name, device)) for name in catalog()}


_OPTIONAL = {
    "diffusers": "pipelines: pip install 'paretune[diffusers]'",
    "transformers": "text encoders: pip install 'paretune[diffusers]'",
    "kernels": "attention kernels from the hub: pip install 'paretune[attention]'",
    "torchao": "int8, int4 and fp8 weights: pip install 'paretune[quantization]'",
    "bitsandbytes": "nf4 and LLM.int8 weights: pip install 'paretune[quantization]'",
    "gguf": "GGUF storage: pip install 'paretune[quantization]'",
    "psycopg": "studies on PostgreSQL: pip install 'paretune[distributed]'",
}


def _packages() -> dict[str, str]:
    import importlib.metadata
    import importlib.util

    found = {}
    for name, cure in _OPTIONAL.items():
        here = importlib.util.find_spec(name) is not None
        found[name] = importlib.metadata.version(name) if here else f"not installed ({cure})"
    return found


def _text(found: Mapping[str, Any]) -> str:
    device, machine = found["device"], found["machine"]
    lines = [f"device     {device['name']} ({device['facts'].get('name')})"]
    lines += [f"           {device['note']}"] if device["note"] else []
    lines += [f"machine    {machine['processor']}, {machine['num_cores']} cores, python {machine['python']}"]
    lines += ["", "packages", *(f"  {name:<14}{state}" for name, state in found["packages"].items())]
    width = max(map(len, found["attention"])) + 2
    lines += ["", f"attention on {device['name']}"]
    lines += [f"  {name:<{width}}{state}" for name, state in found["attention"].items()]
    return "\n".join(lines)
