"""Name the modules of a model whose answers have another floating dtype than their inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

__all__ = ["dtype_changes"]


def dtype_changes(model: nn.Module, call: Callable[[], Any]) -> dict[str, tuple[str, str]]:
    """Run ``call`` once and return, by module name, the dtypes of the first input and the first answer that differ.

    Under casting every layer must answer in the dtype it is given; one that does not (a float32 constant in its
    arithmetic) makes the next layer fail or the whole model slower.
    """
    found: dict[str, tuple[str, str]] = {}

    def look(name: str) -> Callable[[nn.Module, Any, Any, Any], None]:
        def after(module: nn.Module, args: Any, kwargs: Any, answer: Any) -> None:
            given, got = _first((args, kwargs)), _first(answer)
            if given is not None and got is not None and given != got:
                found[name or type(module).__name__] = (str(given), str(got))

        return after

    with ExitStack() as undo:
        for name, module in model.named_modules():
            undo.callback(module.register_forward_hook(look(name), with_kwargs=True).remove)
        call()
    return found


def _first(value: Any) -> torch.dtype | None:
    return next(_floating(value), None)


def _floating(value: Any) -> Iterator[torch.dtype]:
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value.dtype
    elif isinstance(value, dict):
        for item in value.values():
            yield from _floating(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _floating(item)
