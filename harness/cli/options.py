"""Options and arguments that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from paretune.harness.usage import UsageError

__all__ = ["DeviceOption", "DeviceText", "Format", "FormatOption", "OverridesArgument", "TableFormat", "workload_of"]

Format = Literal["text", "json"]
TableFormat = Literal["text", "markdown", "csv", "json"]

DeviceText = "cuda, cuda:1, cpu, sim:NAME, sim:NAME,memory=SIZE, or auto"
DeviceOption = Annotated[str, typer.Option("--device", help=f"Where to run: {DeviceText}.")]
FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for programs.")]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(help="Dotted overrides such as workload.steps=8.", metavar="[KEY=VALUE]...")
]


def workload_of(name: str, overrides: Sequence[str]) -> Mapping[str, Any]:
    """The workload's name with its ``workload.KEY=VALUE`` overrides. Raises ``UsageError`` for any other key."""
    from paretune.harness.config import parse

    for override in overrides:
        if not override.startswith("workload."):
            raise UsageError(f"{override!r}: this command takes workload.KEY=VALUE only, such as workload.steps=8.")
    return dict(parse({"workload": {"name": name}}, overrides).workload)
