"""The table of strategies that the README shows, made from the registry."""

from __future__ import annotations

import dataclasses

from paretune.strategies.base import ComponentStrategy, Strategy
from paretune.strategies.notation import format_value
from paretune.strategies.registry import registry
from paretune.strategies.rules import Excludes

__all__ = ["markdown"]


def markdown() -> str:
    """One row a strategy: what it does, on what, whether the output stays equal, its parameters, what it excludes."""
    rows = [
        "| strategy | what it does | works on | output | parameters | not together with |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*rows, *(_row(cls) for cls in registry().values())])


def _row(cls: type[Strategy]) -> str:
    module = __import__(cls.__module__, fromlist=["__doc__"])
    purpose = (module.__doc__ or "").strip().splitlines()[0].rstrip(".")
    output = "may change" if cls.changes_output else "exact"
    return f"| `{cls.name}` | {purpose} | {_where(cls)} | {output} | {_parameters(cls)} | {_excluded(cls)} |"


def _where(cls: type[Strategy]) -> str:
    if not issubclass(cls, ComponentStrategy):
        return "the pipeline, or one component"
    roles = "any component" if len(cls.roles) == 4 else ", ".join(role.replace("_", " ") for role in cls.roles)
    return f"{roles}; all of them unless one is named" if cls.everywhere else roles


def _parameters(cls: type[Strategy]) -> str:
    return "<br>".join(_parameter(field) for field in dataclasses.fields(cls)) or "none"


def _parameter(field: dataclasses.Field[object]) -> str:
    alias = field.metadata.get("alias")
    name = f"`{field.name}={format_value(field.default)}`" + (f" (or `{alias}`)" if alias else "")
    return f"{name}: {field.metadata.get('help', '')}".rstrip(": ")


def _excluded(cls: type[Strategy]) -> str:
    others = [f"`{rule.other}`" for rule in cls.rules if isinstance(rule, Excludes) and rule.other != cls.name]
    return ", ".join(others) or "none"
