"""Give one object properties of its own (``device``, ``dtype``, ``_execution_device``) without touching its class.

Pipelines ask their parts where they live and what they compute in. Under offload or casting the stored weights answer
wrongly: they say "cpu" or "float8". The object gets a one-off subclass that answers what the caller means; undo gives the
class back. ``isinstance`` and the class name stay as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paretune.strategies.base import Undo

__all__ = ["one_off", "present"]


def present(obj: Any, undo: Undo, **values: Any) -> None:
    """Make ``obj.<name>`` return the given constants until undone; may be stacked, and must be undone last first."""
    original = type(obj)
    obj.__class__ = one_off(original, {name: _constant(value) for name, value in values.items()})
    undo(lambda: setattr(obj, "__class__", original))


def one_off(original: type, members: Mapping[str, Any]) -> type:
    """A class that says it is ``original``, fits its objects, and has these members on top."""
    names = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__slots__": ()}
    metaclass: Any = type(original)
    made: type = metaclass(original.__name__, (original,), {**members, **names})
    return made


def _constant(value: Any) -> property:
    return property(lambda self: value)
