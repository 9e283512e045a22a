"""Give one object methods of its own through a one-off subclass; its class and every other object stay as they were."""

from __future__ import annotations

from typing import Any

from paretune.strategies.base import Undo
from paretune.strategies.facade import one_off

__all__ = ["Specialised"]


class Specialised:
    """One-off subclasses, one per original class, so that objects of equal class still have equal classes.

    ``members`` maps a class to the members its subclass gets. A member reaches the original through ``super()``-like
    access: ``original_class.method(self, ...)``.
    """

    def __init__(self, undo: Undo) -> None:
        self._undo = undo
        self._made: dict[type, type] = {}

    def apply(self, obj: Any, **members: Any) -> None:
        """Give ``obj`` these members until undone; the first call for a class decides the members for that class."""
        original = type(obj)
        if original not in self._made:
            self._made[original] = one_off(original, members)
        obj.__class__ = self._made[original]
        self._undo(lambda: setattr(obj, "__class__", original))
