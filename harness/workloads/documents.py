"""Find and read architecture files: what a file `extends` and what its components are `like` is merged in."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from paretune.harness.strict_yaml import read_yaml
from paretune.harness.workloads.base import WorkloadError

__all__ = ["ArchitectureError", "read_document", "shipped"]


class ArchitectureError(WorkloadError):
    """An architecture file that cannot be found or read; the text names the file, the key and what to do."""


@cache
def shipped() -> tuple[str, ...]:
    """Names of the architecture files that come with the package, sorted."""
    files = _folder().iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def _folder() -> Traversable:
    return resources.files("paretune.configs") / "workloads"


def read_document(name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """The file's mapping with what it `extends` merged underneath, and what its components are `like` put in."""
    if name in above:
        raise ArchitectureError(f"{name}: the files build on each other in a circle: {' -> '.join((*above, name))}.")
    own = {"name": Path(name).stem if _is_path(name) else name, **_read(name)}
    below = (*above, name)
    parent = own.pop("extends", None)
    if parent is not None:
        own = _merge(read_document(_beside(name, str(parent)), below), own)
    components = own.get("components")
    if isinstance(components, Mapping):
        own["components"] = {key: _borrowed(value, key, below) for key, value in components.items()}
    return own


def _borrowed(component: Any, key: str, above: tuple[str, ...]) -> Any:
    """Resolve `like: flux.1-dev/text_encoder_2`: that component of that file, with what stands here merged over it."""
    if not isinstance(component, Mapping) or "like" not in component:
        return component
    file, _, part = str(component["like"]).rpartition("/")
    known = read_document(_beside(above[-1], file), above).get("components", {})
    if part not in known:
        raise ArchitectureError(f"{above[-1]}: components.{key}.like: {file!r} has no component {part!r}.")
    return _merge(known[part], {field: value for field, value in component.items() if field != "like"})


def _is_path(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


def _beside(name: str, other: str) -> str:
    """`other` as `name`'s file means it: a shipped name, or a path from that file's folder."""
    return str(Path(name).parent / other) if _is_path(other) and _is_path(name) else other


def _read(name: str) -> dict[str, Any]:
    """The mapping in one file. Raises `ArchitectureError`."""
    if not _is_path(name) and name not in shipped():
        near = difflib.get_close_matches(name, shipped(), n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "`paretune list workloads` shows the shipped ones."
        raise ArchitectureError(f"workload.name: no architecture file for {name!r}. {hint}")
    if not _is_path(name):
        return _read_shipped(name)
    if not Path(name).is_file():
        raise ArchitectureError(f"workload.name: there is no architecture file {name!r}.")
    return _parse(name, Path(name).read_text(encoding="utf-8"))


@cache
def _read_shipped(name: str) -> dict[str, Any]:
    return _parse(name, (_folder() / f"{name}.yaml").read_text(encoding="utf-8"))


def _parse(name: str, text: str) -> dict[str, Any]:
    import yaml

    try:
        document = read_yaml(text)
    except yaml.YAMLError as error:
        raise ArchitectureError(f"{name}: not valid YAML: {error}") from error
    if not isinstance(document, dict):
        raise ArchitectureError(f"{name}: an architecture file is a mapping; this one is a {type(document).__name__}.")
    return document


def _merge(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`own` over `base`, mappings merged key by key; `like` replaces what was there.

    A changed configuration makes an inherited parameter count void.
    """
    merged = dict(base)
    for key, value in own.items():
        inherited = base.get(key)
        if isinstance(inherited, Mapping) and isinstance(value, Mapping) and "like" not in value:
            merged[key] = _merge(inherited, value)
            if "config" in value and "parameters" not in value:
                merged[key].pop("parameters", None)
        else:
            merged[key] = value
    return merged
