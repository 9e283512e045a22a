"""Replacements that several routes lay over one place and take away in any order, leaving what was there at first."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["lay"]

_layers: weakref.WeakKeyDictionary[torch.nn.Module, dict[str, list[Any]]] = weakref.WeakKeyDictionary()


def lay(module: torch.nn.Module, place: str, new: Any) -> Callable[[], None]:
    """Put ``new`` at ``place`` ("class" or an attribute's name) of ``module``; the inverse takes just this layer away.

    A value that somebody else has put there since is later than ours and stays.
    """
    stack = _layers.setdefault(module, {}).setdefault(place, [])
    if not stack or stack[-1] is not _read(module, place):
        stack[:] = [_read(module, place)]
    stack.append(new)
    _write(module, place, new)

    def take_away() -> None:
        top = stack[-1]
        remaining = [value for value in stack if value is not new]
        stack[:] = remaining
        if top is new and _read(module, place) is new:
            _write(module, place, remaining[-1])
        if len(remaining) == 1:
            _layers.get(module, {}).pop(place, None)

    return take_away


def _read(module: torch.nn.Module, place: str) -> Any:
    return type(module) if place == "class" else vars(module).get(place)


def _write(module: Any, place: str, value: Any) -> None:
    if place == "class":
        module.__class__ = value
    else:
        vars(module)[place] = value
