"""Compile the forward of chosen modules, with the hooks of plans around the compiled code and none inside it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

import torch
from torch import nn

from paretune.strategies.base import Undo
from paretune.strategies.errors import Unsupported
from paretune.strategies.mechanics import entries
from paretune.strategies.mechanics.blocks import find_blocks
from paretune.strategies.mechanics.casting import Window, widen_whole
from paretune.strategies.mechanics.override import Specialised

__all__ = ["CompileFacts", "compile_forward", "is_inside", "mark", "regions"]

_ENTRY_POINTS = ("decoder", "encoder")
_inside = threading.local()


def is_inside() -> bool:
    """Whether a compiled region is running on this thread; a simulated device charges its operators otherwise."""
    return getattr(_inside, "depth", 0) > 0


def regions(model: nn.Module, scope: str) -> list[nn.Module]:
    """The modules to compile: repeated blocks of equal class (``regional``), or everything that is called (``whole``).

    An autoencoder is called through ``decode`` and ``encode``, so its parts of those names are the whole. Raises
    ``Unsupported`` with the class's name when there is nothing to compile.
    """
    name = type(model).__name__
    if scope == "whole":
        if not hasattr(model, "decode"):
            return [model]
        parts = [
            part for part in (getattr(model, entry, None) for entry in _ENTRY_POINTS) if isinstance(part, nn.Module)
        ]
        if not parts:
            raise Unsupported(
                f"compile: {name} is called through decode and has no decoder. Compile another component."
            )
        return parts
    blocks = [block.module for block in find_blocks(model)]
    numbers = Counter(map(type, blocks))
    repeated = [block for block in blocks if numbers[type(block)] > 1]
    if not repeated:
        raise Unsupported(f"compile: {name} has no repeated blocks. Set scope=whole.")
    return repeated


def compile_forward(modules: list[nn.Module], options: Mapping[str, Any], undo: Undo) -> None:
    """Give each module a compiled ``forward``; modules of one class share it, so it is compiled once."""
    special, made = Specialised(undo), dict[type, Any]()
    for module in modules:
        widen_whole(module, undo)
        original = type(module)
        if original not in made:
            made[original] = _bare_forward(torch.compile(_forward_of(original), **options))
        special.apply(module, forward=made[original])


def mark(modules: list[nn.Module], undo: Undo) -> None:
    """Only say that these modules run as compiled code would, for devices that predict instead of computing."""

    def enter(module: nn.Module, args: Any) -> None:
        _inside.depth = getattr(_inside, "depth", 0) + 1

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        _inside.depth = max(getattr(_inside, "depth", 0) - 1, 0)

    hooks: tuple[Any, ...] = (enter, leave)
    for hook in hooks:
        hook.is_neutral = lambda module: True
    for module in modules:
        widen_whole(module, undo)
        undo(module.register_forward_pre_hook(enter).remove)
        undo(module.register_forward_hook(leave, prepend=True, always_call=True).remove)


def _forward_of(cls: type[nn.Module]) -> Callable[..., Any]:
    """A copy of the class's own ``forward``: the compiler keeps what it made with the function's code.

    So no other plan's compilations are found again or counted. Calling ``cls.forward`` from a function of ours would
    end a graph where a class is marked as one that graphs may call, as the blocks of diffusers are.
    """
    forward = cls.forward
    if not isinstance(forward, FunctionType):
        return forward
    code, names = forward.__code__.replace(), forward.__globals__
    copy = FunctionType(code, names, forward.__name__, forward.__defaults__, forward.__closure__)
    copy.__kwdefaults__ = forward.__kwdefaults__
    return copy


def _bare_forward(compiled: Callable[..., Any]) -> Callable[..., Any]:
    twins: dict[int, nn.Module] = {}

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if id(self) not in twins:
            twins[id(self)] = _bare(self)
        return compiled(twins[id(self)], *args, **kwargs)

    return forward


def _bare(module: nn.Module) -> nn.Module:
    """The module over the same parameters, without the hooks that place and widen weights: those run around the region.

    Made at the first call, when every strategy of the plan is at work.
    """
    twin: nn.Module = object.__new__(_plain(type(module)))
    twin.__dict__.update(vars(module))
    twin.__dict__["_modules"] = {name: child and _bare(child) for name, child in module._modules.items()}
    for name in ("_forward_pre_hooks", "_forward_hooks"):
        hooks = vars(module)[name]
        twin.__dict__[name] = type(hooks)((key, hook) for key, hook in hooks.items() if not _is_ours(hook))
    return twin


def _is_ours(hook: Any) -> bool:
    return isinstance(getattr(hook, "__self__", None), Window) or getattr(hook, "__module__", "") == entries.__name__


def _plain(cls: type) -> type:
    """The class below those that watch for reads of weights, and below the compiled forward."""
    while any(
        getattr(vars(cls).get(n), "__module__", "") in (entries.__name__, __name__) for n in ("__getattr__", "forward")
    ):
        cls = cls.__bases__[0]
    return cls


class CompileFacts(Mapping[str, Any]):
    """What compiling did so far: graphs, breaks between them and their reasons, recompilations, seconds."""

    def __init__(self, *, num_regions: int, undo: Undo) -> None:
        from torch._dynamo.utils import counters

        self._regions, self._counters = num_regions, counters
        self._began_us = time.time_ns() // 1000
        self._breaks_before = dict(counters["graph_break"])
        self._before = self._counts()
        self._final: dict[str, Any] | None = None
        undo(self._freeze)

    def _counts(self) -> dict[str, float]:
        from torch._dynamo.utils import compilation_time_metrics, get_compilation_metrics

        stats, breaks = self._counters["stats"], self._counters["graph_break"]
        return {
            "num_graphs": stats["unique_graphs"],
            "num_graph_breaks": sum(breaks.values()),
            # The list keeps only the newest compilations of the process, so its length says nothing.
            "num_recompiles": sum(map(self._is_recompilation, get_compilation_metrics())),
            "compile_s": sum(compilation_time_metrics.get("_compile.compile_inner", ())),
        }

    def _is_recompilation(self, metrics: Any) -> bool:
        return bool(metrics.recompile_reason) and (metrics.start_time_us or 0) >= self._began_us

    def _now(self) -> dict[str, Any]:
        if self._final is not None:
            return self._final
        breaks, before = self._counters["graph_break"], self._breaks_before
        reasons = [str(reason).splitlines()[0] for reason, n in breaks.items() if n > before.get(reason, 0)][:5]
        counts = {name: value - self._before[name] for name, value in self._counts().items()}
        return {"num_regions": self._regions, **counts, "graph_break_reasons": reasons}

    def _freeze(self) -> None:
        self._final = self._now()

    def __getitem__(self, name: str) -> Any:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())
