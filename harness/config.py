"""Read a question from YAML: every key is checked; what is wrong is named with its path and the nearest right one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from paretune.harness.spec import Spec
from paretune.harness.usage import UsageError

__all__ = ["ConfigError", "load", "parse", "read_document", "shipped_configs"]


class ConfigError(UsageError):
    """A question that cannot be read; the text names the file, the key path, and what to write instead."""


def shipped_configs() -> tuple[str, ...]:
    """Names of the questions that come with the package, sorted."""
    files = resources.files("paretune.configs").iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def load(path: str | Path, overrides: Sequence[str] = ()) -> Spec:
    """The question in a YAML file (or in a shipped one, by name) with dotted ``key=value`` overrides.

    Raises ``ConfigError``.
    """
    document = read_document(path)
    if "questions" in document:
        raise ConfigError(
            f"{path}: asks several questions; `paretune sweep {path}` runs them all. Name one question here."
        )
    return parse(document, overrides, name=str(path))


def read_document(path: str | Path) -> Mapping[str, Any]:
    """The mapping in a YAML file or shipped question, unchecked. Raises ``ConfigError``."""
    import yaml

    from paretune.harness.strict_yaml import read_yaml

    file = _find(str(path))
    try:
        document = read_yaml(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(document, Mapping):
        raise ConfigError(f"{path}: a question is a mapping of keys; this is a {type(document).__name__}.")
    return document


def parse(document: Mapping[str, Any], overrides: Sequence[str] = (), *, name: str = "question") -> Spec:
    """The question in an already parsed mapping. Raises ``ConfigError``."""
    merged = dict(document)
    if isinstance(merged.get("workload"), str):
        merged["workload"] = {"name": merged["workload"]}
    for override in overrides:
        merged = _with_override(merged, override)
    try:
        return Spec(**merged)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{name}: {_sentence(entry)}" for entry in error.errors())) from error
    except TypeError as error:
        raise ConfigError(f"{name}: keys must be texts: {error}") from error


def _find(name: str) -> Traversable:
    if name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise ConfigError(f"{name}: there is no such file. Shipped questions: {', '.join(shipped_configs())}.")
        return Path(name)
    file = resources.files("paretune.configs") / f"{name}.yaml"
    if not file.is_file():
        near = difflib.get_close_matches(name, shipped_configs(), n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Shipped: {', '.join(shipped_configs())}."
        raise ConfigError(f"{name!r} is neither a YAML file nor a shipped question. {hint}")
    return file


def _with_override(document: Mapping[str, Any], override: str) -> dict[str, Any]:
    """Set one dotted key; the value is read as YAML, so ``workload.steps=8`` is a number."""
    import yaml

    from paretune.harness.strict_yaml import read_yaml

    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"override {override!r} is not `key.path=value`, such as workload.steps=8.")
    keys = path.strip().split(".")
    try:
        value = read_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: the value is not valid YAML: {error}") from error
    return _set(document, keys, value, override)


def _set(document: Mapping[str, Any], keys: Sequence[str], value: Any, override: str) -> dict[str, Any]:
    copy = dict(document)
    if len(keys) == 1:
        copy[keys[0]] = value
        return copy
    below = copy.get(keys[0]) or {}
    if not isinstance(below, Mapping):
        raise ConfigError(f"override {override!r}: `{keys[0]}` holds {below!r}, which has no keys below it.")
    copy[keys[0]] = _set(below, keys[1:], value, override)
    return copy


def _sentence(entry: Any) -> str:
    path = ".".join(str(part) for part in entry["loc"]) or "(top)"
    if entry["type"] == "extra_forbidden":
        return f"`{path}` is not a key.{_nearest(path.split('.'))}"
    told = str(entry["msg"]).removeprefix("Value error, ").removeprefix("size: ")
    return f"`{path}`: {told}" + ("" if told.endswith((".", "?")) else ".")


def _nearest(path: Sequence[str]) -> str:
    model = _model_at(path[:-1])
    known = sorted(model.model_fields) if model else []
    close = difflib.get_close_matches(path[-1], known, n=1)
    return f" Did you mean `{'.'.join([*path[:-1], close[0]])}`?" if close else f" Known here: {', '.join(known)}."


def _model_at(path: Sequence[str]) -> type[BaseModel] | None:
    model: type[BaseModel] = Spec
    for key in path:
        field = model.model_fields.get(key)
        kinds = [field.annotation, *get_args(field.annotation)] if field else []
        below = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not below:
            return None
        model = below[0]
    return model
