"""Give one object properties of its own (``device``, ``dtype``, ``_execution_device``) without touching its class.

Pipelines ask their parts where they live and what they compute in. Under offload or casting the stored weights answer
wrongly: they say "cpu" or "float8". The object gets a one-off subclass that answers what the caller means; undo gives the
class back. ``isinstance`` and the class name stay as they were.
"""

from __future__ import annotations

from typing import Any

from paretune.strategies.base import Undo

__all__ = ["present"]


def present(obj: Any, undo: Undo, **values: Any) -> None:
    """Make ``obj.<name>`` return the given constants until undone; may be stacked, and must be undone last first."""
    original = type(obj)
    names = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__slots__": ()}
    members = {name: _constant(value) for name, value in values.items()}
    metaclass: Any = type(original)
    obj.__class__ = metaclass(original.__name__, (original,), {**members, **names})
    undo(lambda: setattr(obj, "__class__", original))


def _constant(value: Any) -> property:
    return property(lambda self: value)
