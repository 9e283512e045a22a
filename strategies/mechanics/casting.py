"""Keep layers' weights in a storage dtype and widen them only while something reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

from paretune.strategies.base import Undo
from paretune.strategies.mechanics.override import Specialised

__all__ = ["Cast", "Window", "count_out_of_range", "guard", "store", "widen_while_read", "widen_whole"]


@dataclass(frozen=True, kw_only=True)
class Cast:
    """storage: the dtype at rest. compute: the dtype while a layer computes; ``None`` for the one each layer had.

    has_data: whether tensors hold values, which a device that only predicts does not need.
    """

    storage: torch.dtype
    compute: torch.dtype | None
    non_blocking: bool = False
    has_data: bool = True


@dataclass(kw_only=True, eq=False)
class Window:
    """Hooks of one module: parameters stored small are wide between its call and its return, also after an exception.

    The stored tensor is put back, not made anew, so whoever placed it (an offload strategy) finds its own tensor.
    """

    storage: torch.dtype
    non_blocking: bool
    targets: dict[nn.Module, dict[str, torch.dtype]] = field(default_factory=dict)
    frames: list[list[tuple[nn.Parameter, torch.Tensor]]] = field(default_factory=list)

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        frame: list[tuple[nn.Parameter, torch.Tensor]] = []
        self.frames.append(frame)
        for owner, names in self.targets.items():
            for name, compute in names.items():
                parameter = getattr(owner, name)  # a read that an offload strategy sees, and brings the weight for
                if parameter.dtype is self.storage:
                    stored = parameter.data
                    frame.append((parameter, stored))
                    parameter.data = stored.to(compute, non_blocking=self.non_blocking)

    def leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if self.frames:
            for parameter, stored in self.frames.pop():
                parameter.data = stored

    def close(self) -> None:
        """Narrow what a call left wide that was cut short without its hook after it (``KeyboardInterrupt``)."""
        while self.frames:
            for parameter, stored in self.frames.pop():
                parameter.data = stored

    def copy(self) -> Window:
        """A window over the same parameters, for another module."""
        return Window(storage=self.storage, non_blocking=self.non_blocking, targets=self.targets)

    def attach(self, module: nn.Module, undo: Undo) -> None:
        """Widen after all other hooks before a call (an offload brings the weights), narrow before all others after."""
        undo(self.close)
        undo(module.register_forward_pre_hook(self.enter, with_kwargs=True).remove)
        leave = module.register_forward_hook(self.leave, with_kwargs=True, prepend=True, always_call=True)
        undo(leave.remove)


def count_out_of_range(parameter: torch.Tensor, storage: torch.dtype) -> int:
    """How many finite values lie beyond the largest of ``storage``; torch would turn them into nan or infinity."""
    limit = torch.finfo(storage).max
    wide = parameter.data.float() if parameter.element_size() < 4 else parameter.data
    return int((wide.abs() > limit).sum())


def store(layers: Iterable[nn.Module], cast: Cast, undo: Undo) -> dict[nn.Module, dict[str, torch.dtype]]:
    """Put the layers' parameters into the storage dtype where they are; undo gives back the very tensors.

    The unrounded weights wait on the host until then. A parameter whose stored values somebody changed meanwhile keeps
    the change: it is widened instead. Returns the dtype to compute in, by layer and parameter name.
    """
    targets: dict[nn.Module, dict[str, torch.dtype]] = {}
    done: dict[int, torch.dtype] = {}
    for layer in layers:
        for name, parameter in layer.named_parameters(recurse=False):
            if id(parameter) not in done:
                done[id(parameter)] = cast.compute or parameter.dtype
                _store_one(parameter, cast, undo)
            targets.setdefault(layer, {})[name] = done[id(parameter)]
    return targets


def _store_one(parameter: nn.Parameter, cast: Cast, undo: Undo) -> None:
    home, original = parameter.device, parameter.data
    kept = original if home.type == "cpu" else original.to("cpu")
    parameter.data = original.to(cast.storage)

    def restore() -> None:
        changed = cast.has_data and not _same_bits(parameter.data, kept.to(cast.storage))
        parameter.data = parameter.data.to(home, original.dtype) if changed else kept.to(home)

    undo(restore)


def _same_bits(stored: torch.Tensor, expected: torch.Tensor) -> bool:
    if stored.shape != expected.shape or stored.dtype is not expected.dtype:
        return False
    return torch.equal(stored.to(expected.device).view(torch.uint8), expected.view(torch.uint8))


def widen_while_read(
    model: nn.Module, targets: Mapping[nn.Module, dict[str, torch.dtype]], cast: Cast, undo: Undo
) -> int:
    """Hook every cast layer, and every module whose ``forward`` looks at the weights of cast layers inside it.

    Such modules (attention that multiplies by ``out_proj.weight``, a feed-forward that asks ``wo.weight.dtype`` and
    rounds its input to it) would otherwise see the storage dtype. Returns how many there are.
    """
    num_readers = 0
    for module in model.modules():
        if module not in targets and (read := _read_by(module, targets)):
            Window(storage=cast.storage, non_blocking=cast.non_blocking, targets=read).attach(module, undo)
            num_readers += 1
    for layer, names in targets.items():
        Window(storage=cast.storage, non_blocking=cast.non_blocking, targets={layer: names}).attach(layer, undo)
    return num_readers


def widen_whole(module: nn.Module, undo: Undo) -> None:
    """Widen every cast layer inside ``module`` for the length of its call, for code that runs without their hooks."""
    for hook in [hook for inner in module.modules() for hook in inner._forward_pre_hooks.values()]:
        window = getattr(hook, "__self__", None)
        if isinstance(window, Window) and module not in window.targets:
            window.copy().attach(module, undo)


def _read_by(
    module: nn.Module, targets: Mapping[nn.Module, dict[str, torch.dtype]]
) -> dict[nn.Module, dict[str, torch.dtype]]:
    names = _names_in_forward(type(module))
    if names & {"weight", "bias"}:
        return {layer: targets[layer] for layer in _near_children(module) if layer in targets}
    if {"parameters", "dtype"} <= names:
        return dict(_first_parameters(module, targets))
    return {}


def _near_children(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict | nn.Sequential):
            yield from _near_children(child)
        else:
            yield child


def _first_parameters(
    module: nn.Module, targets: Mapping[nn.Module, dict[str, torch.dtype]]
) -> Iterator[tuple[nn.Module, dict[str, torch.dtype]]]:
    """``next(module.parameters()).dtype`` looks at the first parameter of the module or of one of its children."""
    for start in (module, *module.children()):
        owner = next((m for m in start.modules() if any(True for _ in m.parameters(recurse=False))), None)
        if owner is not None and owner in targets:
            yield owner, targets[owner]


def _names_in_forward(cls: type[nn.Module]) -> set[str]:
    """Names of attributes that ``forward``, or a method of the class that it calls, mentions."""
    code = getattr(cls.forward, "__code__", None)
    if not isinstance(code, CodeType):
        return set()
    names = set(code.co_names)
    for name in code.co_names:
        method = getattr(cls, name, None)
        if isinstance(method, FunctionType) and method.__module__ == cls.__module__:
            names |= set(method.__code__.co_names)
    return names


def guard(model: nn.Module, layers: Iterable[nn.Module], storage: torch.dtype, undo: Undo) -> None:
    """Refuse ``.to(dtype)``, ``.half()`` and the like on the model while its weights are rounded; moves are allowed.

    ``storage`` is the dtype of the parameters (or of their scales) that must not change.
    """
    cast = set(layers)
    special = Specialised(undo)
    for module in [m for m in model.modules() if any(inner in cast for inner in m.modules())]:
        special.apply(module, _apply=_guarded(type(module), storage), paretune_storage_dtype=storage)


def _guarded(original: type[nn.Module], storage: torch.dtype) -> Any:
    def _apply(self: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:
        stored = next((p for p in self.parameters() if p.dtype is storage), None)
        if stored is not None and fn(torch.empty(0, dtype=storage, device=stored.device)).dtype is not storage:
            name = original.__name__
            raise RuntimeError(
                f"{name} cannot change dtype while a plan keeps its weights rounded, in {storage}. Undo the plan first."
            )
        changed: nn.Module = original._apply(self, fn, recurse)  # type: ignore[no-untyped-call]
        return changed

    return _apply
