"""Reads of weights that live on another device: a call around their module gets a copy where it computes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from paretune.strategies.base import Undo
from paretune.strategies.mechanics.cells import owners_of
from paretune.strategies.mechanics.entries import subclass_of

__all__ = ["Calls", "read_across"]


class Calls:
    """Counts calls in progress."""

    def __init__(self) -> None:
        self.depth = 0

    @contextmanager
    def entry(self) -> Iterator[None]:
        """A call, also if it raises."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def follow(self, module: nn.Module, undo: Undo) -> None:
        """Count the calls of ``module``."""

        def before(called: nn.Module, args: Any) -> None:
            self.depth += 1

        def after(called: nn.Module, args: Any, output: Any) -> None:
            self.depth = max(self.depth - 1, 0)

        undo(module.register_forward_pre_hook(before, prepend=True).remove)
        undo(module.register_forward_hook(after, always_call=True).remove)


def read_across(modules: Iterable[nn.Module], around: Calls, inside: Calls, device: torch.device, undo: Undo) -> None:
    """Within ``around`` and outside of ``inside``, reading a weight of ``modules`` gives a copy on ``device``.

    A parent that uses ``child.weight`` without calling the child then computes on one device. Everywhere else, as in
    code that edits or saves weights, the weight itself is returned.
    """
    classes: dict[type, type] = {}
    for owner in dict.fromkeys(owner for module in modules for owner in owners_of(module)):
        original = type(owner)
        if original not in classes:
            classes[original] = subclass_of(original, {"__getattr__": _reader(original, around, inside, device)})
        owner.__class__ = classes[original]
        undo(functools.partial(setattr, owner, "__class__", original))


def _reader(original: type[nn.Module], around: Calls, inside: Calls, device: torch.device) -> Any:
    def __getattr__(self: nn.Module, name: str) -> Any:  # noqa: N807 - becomes the method of that name
        value = original.__getattr__(self, name)
        if isinstance(value, torch.Tensor) and around.depth and not inside.depth:
            return value.to(device)
        return value

    return __getattr__
