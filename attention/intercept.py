"""For code that cannot be followed: while a layer's forward runs, its attention calls are caught as they are made.

A function mode of PyTorch's, entered by a forward pre-hook and left by a hook that also runs after an exception. It
belongs to the thread that entered it, so other models and other threads never see it; it slows every operator of the
layer a little, which is why ``rebind`` is tried first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

__all__ = ["intercept"]


class _Catcher(TorchFunctionMode):
    """Sends attention calls to the stand-in on top of its stack; one per thread, shared by nested routes."""

    def __init__(self) -> None:
        super().__init__()
        self.stand_ins: list[Callable[..., Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.scaled_dot_product_attention:
            return self.stand_ins[-1](*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def intercept(
    module: torch.nn.Module, stand_in: Callable[..., Any], undo: Callable[[Callable[[], object]], object]
) -> None:
    """Catch the attention calls made under ``module``'s forward; inverses go to ``undo``."""

    def enter(_: torch.nn.Module, args: Any, kwargs: Any) -> None:
        catcher = _current() or _entered()
        catcher.stand_ins.append(stand_in)

    def leave(_: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        _drop(stand_in, all_of_them=False)

    undo(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
    undo(module.register_forward_hook(leave, with_kwargs=True, always_call=True).remove)
    # Hooks do not run after a KeyboardInterrupt; what it left behind goes when the route does.
    undo(lambda: _drop(stand_in, all_of_them=True))


def _stack() -> list[Any]:
    return [torch._C._get_function_stack_at(index) for index in range(torch._C._len_torch_function_stack())]


def _current() -> _Catcher | None:
    return next((mode for mode in _stack() if isinstance(mode, _Catcher)), None)


def _entered() -> _Catcher:
    catcher = _Catcher()
    torch._C._push_on_torch_function_stack(catcher)
    return catcher


def _drop(stand_in: Callable[..., Any], *, all_of_them: bool) -> None:
    catcher = _current()
    if catcher is None:
        return
    for index in reversed(range(len(catcher.stand_ins))):
        if catcher.stand_ins[index] is stand_in:
            del catcher.stand_ins[index]
            if not all_of_them:
                break
    if not catcher.stand_ins:
        _remove(catcher)


def _remove(catcher: _Catcher) -> None:
    """Take the mode out of this thread's stack, wherever it stands."""
    above: list[Any] = []
    while (mode := torch._C._pop_torch_function_stack()) is not catcher:
        above.append(mode)
    for mode in reversed(above):
        torch._C._push_on_torch_function_stack(mode)
