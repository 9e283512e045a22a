"""Find every strategy by looking through this folder: adding a strategy is adding a file."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeGuard

from paretune.strategies.base import Strategy

__all__ = ["registry"]

_HERE = Path(__file__).parent
_CONTRACT = {
    "__init__",
    "applied",
    "base",
    "errors",
    "facade",
    "lazy",
    "notation",
    "parts",
    "plan",
    "registry",
    "rules",
}


@functools.cache
def registry() -> Mapping[str, type[Strategy]]:
    """Every strategy by name, in alphabetical order. Raises ``ImportError`` if two claim one name."""
    found: dict[str, type[Strategy]] = {}
    for path in sorted(_HERE.glob("*.py")):
        if path.stem in _CONTRACT:
            continue
        module = importlib.import_module(f"paretune.strategies.{path.stem}")
        for cls in vars(module).values():
            if _is_strategy_of(cls, module.__name__):
                if cls.name in found:
                    raise ImportError(f"two strategies are named {cls.name!r}: {found[cls.name]} and {cls}.")
                found[cls.name] = cls
    return MappingProxyType(dict(sorted(found.items())))


def _is_strategy_of(value: object, module_name: str) -> TypeGuard[type[Strategy]]:
    if not inspect.isclass(value) or value.__module__ != module_name:
        return False
    return issubclass(value, Strategy) and not inspect.isabstract(value)
