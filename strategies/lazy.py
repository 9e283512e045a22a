"""Names that import torch on first use, so that plans can be listed, parsed and checked without it.

Importing torch costs seconds and the pure part of the package (plans, rules, records, tables) never needs it. Modules at
the top of ``strategies/`` write ``from paretune.strategies.lazy import torch`` and use it inside functions only; code that
runs while a model runs lives in ``strategies/mechanics`` and imports torch itself.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["torch"]


class _Lazy(ModuleType):
    """Stands for a module until one of its attributes is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    import torch as torch
else:
    torch = _Lazy("torch")
