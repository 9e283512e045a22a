"""Predict compiled code: elementwise work rides along with its neighbours, and the host submits with little effort."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from paretune.strategies.mechanics import compiled

__all__ = ["FUSED_SHARE", "HOST_SHARE", "CompiledCode", "is_compiled"]

FUSED_SHARE = 0.22
"""Share of an elementwise or normalising kernel's eager time that stays when it is fused with what comes before or after.
Fitted to published pairs of eager and compiled forwards of FLUX.1-dev's denoiser."""
HOST_SHARE = 0.35
"""Share of the eager host time of an operator that compiled code needs."""

_depth: list[int] = [0]


def is_compiled() -> bool:
    """Whether the operator that runs now belongs to compiled code."""
    return _depth[0] > 0 or compiled.is_inside()


class CompiledCode:
    """While a simulation is active, `torch.compile` compiles nothing: it marks the function as compiled code."""

    def __enter__(self) -> CompiledCode:
        self._original = torch.compile
        torch.compile = _marked
        return self

    def __exit__(self, *_: Any) -> None:
        torch.compile = self._original


def _marked(model: Any = None, **options: Any) -> Any:
    if model is None:
        return functools.partial(_marked, **options)
    if isinstance(model, torch.nn.Module):
        model.compile(**options)
        return model
    return _inside(model)


def _inside(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _depth[0] += 1
        try:
            return function(*args, **kwargs)
        finally:
            _depth[0] -= 1

    return call
