"""Notice every way into a component: calls of its modules, its public methods, and reads of its weights."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any

import torch
from torch import nn

from paretune.strategies.base import Undo
from paretune.strategies.mechanics.cells import owners_of
from paretune.strategies.mechanics.residency import Residency

__all__ = ["bracketed", "public_methods", "subclass_of", "watch"]


def watch(residency: Residency, undo: Undo) -> None:
    """Connect ``residency`` to its component: hooks on its modules, one-off subclasses for reads and public methods."""
    component = residency.component
    classes: dict[tuple[type, bool], type] = {}
    owners = set(owners_of(component))
    hooked = dict.fromkeys((*owners_of(component), *residency.held.by_trigger, component))
    residency.on_read = _Readers(residency, set(hooked), undo).found
    for module in hooked:
        _hook(residency, module, undo)
        if module in owners or module is component:
            _reclass(residency, module, classes, undo)


class _Readers:
    """Modules that read the weights of their children: from the next call on, what they read leaves when they return.

    Hooks cost time, so only parents are hooked of which one was seen reading, and with it all others of its class.
    """

    def __init__(self, residency: Residency, hooked: set[nn.Module], undo: Undo) -> None:
        self._residency, self._hooked, self._undo = residency, hooked, undo
        self._parents: dict[nn.Module, list[nn.Module]] = {}
        for parent in residency.component.modules():
            for child in parent.children():
                self._parents.setdefault(child, []).append(parent)

    def found(self, owner: nn.Module) -> None:
        """A weight of ``owner`` was read outside of its own call."""
        for parent in self._parents.get(owner, ()):
            if parent not in self._residency.framed and parent is not self._residency.component:
                self._follow(type(parent))

    def _follow(self, kind: type[nn.Module]) -> None:
        for module in self._residency.component.modules():
            if type(module) is kind and module not in self._residency.framed:
                self._residency.framed.add(module)
                if module not in self._hooked:
                    self._hooked.add(module)
                    _hook(self._residency, module, self._undo)


def _hook(residency: Residency, module: nn.Module, undo: Undo) -> None:
    """Our hook before a call runs first, ours after it last: other hooks of the module find its weights in place."""

    def before(called: nn.Module, args: Any) -> None:
        if called is not module:
            raise RuntimeError(_COPIED.format(type(called).__name__))
        residency.begin(called)

    def after(called: nn.Module, args: Any, output: Any) -> None:
        residency.end(called)

    hooks: tuple[Any, ...] = (before, after)
    for hook in hooks:
        hook.is_neutral = residency.holds
    undo(module.register_forward_pre_hook(before, prepend=True).remove)
    undo(module.register_forward_hook(after, always_call=True).remove)


_COPIED = (
    "this {} is a copy of a module whose weights a plan places; the copy cannot place its own. "
    "Undo the plan, then copy the model."
)


def _reclass(residency: Residency, module: nn.Module, classes: dict[tuple[type, bool], type], undo: Undo) -> None:
    original = type(module)
    key = (original, module is residency.component)
    if key not in classes:
        members = _members_of_owner(residency, original)
        if module is residency.component:
            members |= _members_of_component(residency, original)
        classes[key] = subclass_of(original, members)
    module.__class__ = classes[key]
    undo(lambda: setattr(module, "__class__", original))


def subclass_of(original: type, members: dict[str, Any]) -> type:
    """A class that says it is ``original`` and has these members on top."""
    names = {"__module__": original.__module__, "__qualname__": original.__qualname__}
    metaclass: Any = type(original)
    made: type = metaclass(original.__name__, (original,), {**members, **names})
    return made


def _members_of_owner(residency: Residency, original: type[nn.Module]) -> dict[str, Any]:
    def __getattr__(self: nn.Module, name: str) -> Any:  # noqa: N807 - becomes the method of that name
        value = original.__getattr__(self, name)
        if isinstance(value, torch.Tensor) and residency.is_active:
            residency.need(self)
        return value

    def _apply(self: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:
        with residency.changing():
            changed: nn.Module = original._apply(self, _without_moving(residency, self, fn), recurse)  # type: ignore[no-untyped-call]
        return changed

    return {"__getattr__": __getattr__, "_apply": _apply}


def _without_moving(residency: Residency, module: nn.Module, fn: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Let ``fn`` change dtypes and layouts but not devices: the plan decides where weights are.

    Moving to the device that the plan computes on changes nothing, as the component already says that it is there.
    Raises ``RuntimeError`` before anything is changed for every other device.
    """
    device = residency.link.device
    if fn(torch.empty(0, device=device)).device != device:
        raise RuntimeError(
            f"{type(module).__name__} cannot be moved: a plan places its weights. Undo the plan first, then move it."
        )

    def change(tensor: torch.Tensor) -> torch.Tensor:
        stays = fn(torch.empty(0, dtype=tensor.dtype)).device == torch.device("cpu")
        result = fn(tensor) if stays else tensor.to(fn(torch.empty(0, dtype=tensor.dtype)).dtype)
        if result is not tensor:
            residency.mark_stale()
        return result

    return change


def _members_of_component(residency: Residency, original: type[nn.Module]) -> dict[str, Any]:
    members: dict[str, Any] = {
        name: bracketed(method, residency.entry) for name, method in public_methods(original, beyond=nn.Module)
    }
    members["__call__"] = bracketed(original.__call__, residency.entry)

    def __deepcopy__(self: nn.Module, memo: Any) -> Any:  # noqa: N807 - becomes the method of that name
        raise RuntimeError(_COPIED.format(type(self).__name__))

    return members | {"__deepcopy__": __deepcopy__}


def public_methods(cls: type, *, beyond: type) -> Iterator[tuple[str, FunctionType]]:
    """Plain public methods that ``cls`` adds to ``beyond``; generators and coroutines run later and are left out."""
    known = set(dir(beyond))
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        if name.startswith("_") or name in known or not isinstance(method, FunctionType):
            continue
        if not (inspect.isgeneratorfunction(method) or inspect.iscoroutinefunction(method)):
            yield name, method


def bracketed(method: Callable[..., Any], entry: Callable[[], AbstractContextManager[None]]) -> Callable[..., Any]:
    """The method inside of ``entry()``; signature and name stay."""

    @functools.wraps(method)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with entry():
            return method(*args, **kwargs)

    return inside
