"""Values told apart by type as well as by size: ``True``, ``1`` and ``1.0`` are equal to Python, not to a plan."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any

__all__ = ["fits", "typed"]

_BETWEEN_TYPES = re.compile(r"\|(?![^\[]*\])")
_SCALARS = {"bool": bool, "int": int, "float": float, "str": str, "None": type(None)}


def typed(value: Any) -> Hashable:
    """A key that is equal for two values only when plans write both alike."""
    if isinstance(value, Mapping):
        return dict, tuple(sorted((str(key), typed(item)) for key, item in value.items()))
    if isinstance(value, tuple | list):
        return tuple, tuple(map(typed, value))
    return type(value).__qualname__, value


def fits(value: Any, annotation: str) -> bool:
    """Whether a value is of the declared type, such as ``int | None``: no number where a switch is meant, nor a switch
    for a number. A whole number may stand for a float; what is inside lists and mappings is for their owner to judge."""
    allowed = {piece.strip() for piece in _BETWEEN_TYPES.split(annotation)}
    if type(value) is bool:
        return "bool" in allowed
    if not allowed <= _SCALARS.keys():
        return True
    kinds = tuple(_SCALARS[name] for name in allowed - {"bool"})
    return isinstance(value, (*kinds, int) if float in kinds else kinds)
