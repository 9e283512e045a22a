"""The default spaces: one file per family of models, usable without reading it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from paretune.harness.config import ConfigError

__all__ = ["preset", "preset_names"]


def preset_names() -> tuple[str, ...]:
    """Names of the shipped spaces, sorted."""
    folder = resources.files("paretune.configs") / "spaces"
    return tuple(sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml")))


def preset(name: str) -> Mapping[str, Mapping[str, Any]]:
    """The strategies of a shipped space by target. Raises ``ConfigError`` with the nearest name."""
    import yaml

    if name not in preset_names():
        near = difflib.get_close_matches(name, preset_names(), n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Shipped: {', '.join(preset_names())}."
        raise ConfigError(f"`space.preset`: there is no space {name!r}. {hint}")
    text = (resources.files("paretune.configs") / "spaces" / f"{name}.yaml").read_text(encoding="utf-8")
    document: Mapping[str, Mapping[str, Any]] = yaml.safe_load(text)["strategies"]
    return document
