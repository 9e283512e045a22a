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
    namespace = {name: property(lambda self, value=value: value) for name, value in values.items()}
    namespace |= {"__module__": original.__module__, "__qualname__": original.__qualname__, "__slots__": ()}
    obj.__class__ = type(original)(original.__name__, (original,), namespace)
    undo(lambda: setattr(obj, "__class__", original))
