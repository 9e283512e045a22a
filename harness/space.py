"""A sweep space: independent axes, each with alternatives that are settings, built from the registry of strategies."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paretune.harness.config import ConfigError
from paretune.strategies import ComponentStrategy, PlanError, Setting, Strategy, registry
from paretune.strategies.notation import build
from paretune.strategies.values import typed

__all__ = ["PIPELINE", "Alternative", "Axis", "axes_of", "settings_of"]

PIPELINE = "pipeline"
"""The target of strategies that see all components at once."""

Alternative = tuple[Setting, ...]
"""What one axis adds to a plan; the empty tuple adds nothing."""

_ROLES = ("denoiser", "text_encoder", "vae", "other")


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One decision of a space, such as where the transformer's weights live, and everything that may be decided."""

    name: str
    alternatives: tuple[Alternative, ...]


def axes_of(
    strategies: Mapping[str, Mapping[str, Any]], components: Mapping[str, str], exclude: Sequence[str] = ()
) -> tuple[Axis, ...]:
    """Axes of a space for a model with these ``components`` (name -> role, in the order they run).

    ``strategies`` maps a component, a role or ``pipeline`` to strategies and their values: ``true`` for every choice a
    strategy declares, or values by parameter; ``always: true`` leaves out the alternative of not using it. Strategies
    that decide where one target's weights live share an axis, because only one of them can. A role that no component
    plays adds nothing.

    Raises ``ConfigError`` naming the key path.
    """
    known, axes = registry(), dict[str, list[Alternative]]()
    for name in exclude:
        if name not in known:
            raise ConfigError(f"`space.exclude`: there is no strategy {name!r}. Known: {', '.join(known)}.")
    for target, wanted in strategies.items():
        names = _components_of(target, components)
        for name, values in wanted.items():
            path = f"space.strategies.{target}.{name}"
            _check(path, name, target, known)
            if values is False or name in exclude or not names:
                continue
            axis = f"{target}.placement" if known[name].places_weights else f"{target}.{name}"
            optional = not (isinstance(values, Mapping) and values.get("always"))
            found = axes.setdefault(axis, [()] if optional else [])
            found += _alternatives(path, known[name], values, names)
    return tuple(Axis(name=name, alternatives=tuple(dict.fromkeys(found))) for name, found in axes.items())


def settings_of(path: str, cls: type[Strategy], values: bool | Mapping[str, Any]) -> Iterator[Strategy]:
    """Every setting of a strategy: all declared choices for ``true``, otherwise the values given by parameter.

    Parameters that mean nothing in a setting keep their default, so each setting comes once. Raises ``ConfigError``.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    aliases = {f.metadata["alias"]: name for name, f in fields.items() if f.metadata.get("alias")}
    if isinstance(values, bool):
        lists = {name: f.metadata["choices"] for name, f in fields.items() if f.metadata.get("choices")}
    else:
        told = {aliases.get(key, key): value for key, value in values.items() if key != "always"}
        lists = {key: value if isinstance(value, list | tuple) else [value] for key, value in told.items()}
    for combination in itertools.product(*lists.values()):
        chosen = dict(zip(lists, combination))
        try:
            setting = build(cls.name, chosen, {cls.name: cls})
        except (PlanError, ValueError, TypeError) as error:
            raise ConfigError(f"`{path}`: {error}") from error
        if not _has_idle_values(setting, chosen):
            yield setting


def _has_idle_values(setting: Strategy, chosen: Mapping[str, Any]) -> bool:
    active, defaults = setting.parameters(), {f.name: typed(f.default) for f in dataclasses.fields(setting)}
    return any(name not in active and typed(getattr(setting, name)) != defaults[name] for name in chosen)


def _alternatives(path: str, cls: type[Strategy], values: Any, names: Sequence[str | None]) -> Iterator[Alternative]:
    for strategy in settings_of(path, cls, values):
        yield tuple(Setting(strategy=strategy, component=name) for name in names)


def _components_of(target: str, components: Mapping[str, str]) -> list[str | None]:
    if target == PIPELINE:
        return [None]
    if target in components:
        return [target]
    if target.removesuffix("s") in _ROLES:
        return [name for name, role in components.items() if role == target.removesuffix("s")]
    raise ConfigError(
        f"`space.strategies.{target}`: the model has no such component. It has: {', '.join(components)}; "
        f"roles are {', '.join(_ROLES)} (with an s where a component has that name too); strategies for all at once "
        f"stand under `{PIPELINE}`."
    )


def _check(path: str, name: str, target: str, known: Mapping[str, type[Strategy]]) -> None:
    import difflib

    if name not in known:
        near = difflib.get_close_matches(name, list(known), n=1)
        raise ConfigError(f"`{path}`: there is no such strategy." + (f" Did you mean `{near[0]}`?" if near else ""))
    if issubclass(known[name], ComponentStrategy) == (target == PIPELINE):
        right = "a component or role" if target == PIPELINE else f"`{PIPELINE}`"
        raise ConfigError(f"`{path}`: {name} belongs under {right}. Move it there.")
