"""Route one model's attention through a backend, and back; no other model and no process-wide default is touched."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch.nn import functional

from paretune.attention.available import require
from paretune.attention.catalog import entry
from paretune.attention.errors import BackendRefused
from paretune.attention.intercept import intercept
from paretune.attention.layered import lay
from paretune.attention.rebind import Rebinder
from paretune.attention.replacement import STAND_INS, dispatch_for, sdpa_for
from paretune.attention.selection import Named, Selection

__all__ = ["Routed", "route"]

Undo = Callable[[Callable[[], object]], object]
_NO_HOME = ("torch", "builtins", "functools", "types", "collections")
_PLAIN = (str, bytes, int, float, bool, complex, torch.Tensor, torch.dtype, torch.device, type(None))


class Routed:
    """A model routed through a backend until ``reset``; as a context manager it resets on leaving, also after an error.

    layers: names of the modules whose attention calls reach the backend; where the code gave no hint, those seen to call it
    so far. missed: attention modules whose own code computes attention in another way, such as explicit products, with the
    reason.
    """

    def __init__(self, selection: Selection) -> None:
        self.backend = selection.name
        self.selection = selection
        self._layers: dict[str, None] = {}
        self.missed: dict[str, str] = {}
        self._inverses = ExitStack()

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the modules that the backend reaches, in the order of the model or of their first call."""
        return tuple(self._layers)

    def reach(self, name: str) -> None:
        """Note that this module's attention goes through the backend."""
        self._layers.setdefault(name)

    def reset(self) -> None:
        """Restore exactly what was there before; a second call does nothing."""
        self._inverses.close()

    def undo(self, inverse: Callable[[], object]) -> None:
        """Remember the inverse of a change; inverses run last first."""
        self._inverses.callback(inverse)

    def __enter__(self) -> Routed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reset()


def route(model: torch.nn.Module, backend: str, *, device: str | torch.device | None = None) -> Routed:
    """Send every attention call of ``model`` through ``backend`` ("auto" chooses for each shape).

    device: where the model will run, by default where its parameters are. Raises ``ValueError`` for an unknown name,
    ``BackendUnavailable`` when the backend cannot run there, ``BackendRefused`` when the model has no attention to
    route. Nothing has changed when it raises.
    """
    selection = _selection(backend, _device(model, device))
    routed = Routed(selection)
    try:
        _install(model, selection, routed)
    except BaseException:
        routed.reset()
        raise
    return routed


def _selection(backend: str, device: torch.device) -> Selection:
    if backend == "auto":
        from paretune.attention.choice import Automatic

        return Automatic(device)
    chosen = entry(backend)
    require(chosen, device)
    return Named(chosen, device.type)


def _device(model: torch.nn.Module, device: str | torch.device | None) -> torch.device:
    if device is not None:
        return torch.device(device)
    tensor = next(
        (t for group in (model.parameters(), model.buffers()) for t in group if t.device.type != "meta"), None
    )
    return torch.device("cpu") if tensor is None else tensor.device


def _install(model: torch.nn.Module, selection: Selection, routed: Routed) -> None:
    rebinder = _rebinder(selection)
    stand_in = sdpa_for(selection, functional.scaled_dot_product_attention)
    for name, module in model.named_modules():
        subclass = rebinder.subclass(type(module))
        if reason := _other_implementation(module):
            routed.missed[name] = reason
        elif _is_blind(module, rebinder):
            intercept(module, stand_in, routed.undo)
            routed.reach(name)
        elif _swap(module, subclass, routed.undo) | _swap_attributes(module, rebinder, routed.undo):
            routed.reach(name)
        elif reason := _why_missed(module):
            routed.missed[name] = reason
    if not routed.layers and routed.missed:
        name, reason = next(iter(routed.missed.items()))
        raise BackendRefused(f"no layer of {type(model).__name__} can be routed; {name}: {reason}.")
    if not routed.layers:
        _watch(model, stand_in, routed)


def _watch(model: torch.nn.Module, stand_in: Any, routed: Routed) -> None:
    """No code mentions attention: catch it wherever it comes from, and note the layers that do call it."""
    for name, module in model.named_modules():
        if module is model or any(True for _ in module.children()):
            intercept(module, partial(_noted, routed, name, stand_in), routed.undo)


def _noted(routed: Routed, name: str, stand_in: Any, *args: Any, **kwargs: Any) -> Any:
    routed.reach(name)
    return stand_in(*args, **kwargs)


def _rebinder(selection: Selection) -> Rebinder:
    original: Any = functional.scaled_dot_product_attention
    replacements: dict[Any, Any] = {original: sdpa_for(selection, original)}
    dispatch = sys.modules.get("diffusers.models.attention_dispatch")
    if dispatch is not None:
        replacements[dispatch.dispatch_attention_fn] = dispatch_for(selection, dispatch.dispatch_attention_fn)
    # What an outer route has put there is replaced like the original.
    replacements |= {inner: replacements[old] for inner, old in STAND_INS.items() if old in replacements}
    if selection.name != "native":
        # PyTorch's fused encoder path computes attention inside one operator; this code must take the open path.
        replacements[torch.backends.mha.get_fastpath_enabled] = _never
    return Rebinder(replacements)


def _never() -> bool:
    return False


def _is_blind(module: torch.nn.Module, rebinder: Rebinder) -> bool:
    """Whether the module, or what it holds to compute attention, has code that cannot be followed."""
    held = [type(value) for value in vars(module).values() if _may_attend(value)]
    for cls in held:
        rebinder.subclass(cls)
    return any(rebinder.blind & set(cls.__mro__) for cls in (type(module), *held))


def _may_attend(held: Any) -> bool:
    """Objects of a class of their own; not tensors, modules, classes or containers."""
    home = type(held).__module__
    return hasattr(held, "__dict__") and not isinstance(held, type | torch.nn.Module) and not home.startswith(_NO_HOME)


def _swap(module: Any, subclass: type | None, undo: Undo) -> bool:
    """Give the module the subclass whose methods reach the backend, if there is one."""
    if subclass is None:
        return False
    undo(lay(module, "class", subclass))
    return True


def _swap_attributes(module: torch.nn.Module, rebinder: Rebinder, undo: Undo) -> bool:
    """Replace what the module holds to compute attention: a processor, a function, a partial, a table of them."""
    swapped = False
    for name, held in list(vars(module).items()):
        if isinstance(held, _PLAIN) or name.startswith(("_parameters", "_buffers", "_modules", "_non_persistent")):
            continue
        new = _copy_of(held, rebinder)
        if new is not None:
            undo(lay(module, name, new))
            swapped = True
    return swapped


def _copy_of(held: Any, rebinder: Rebinder) -> Any | None:
    subclass = rebinder.subclass(type(held)) if _may_attend(held) else None
    if subclass is None:
        return rebinder.value(held)
    new = copy.copy(held)
    new.__class__ = subclass
    new.__dict__ = held.__dict__
    return new


def _other_implementation(module: torch.nn.Module) -> str:
    """transformers' layers choose among their library's own functions by a word in the configuration."""
    chosen = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if chosen in (None, "sdpa") or "attention" not in type(module).__name__.lower():
        return ""
    return f"its configuration asks for {chosen!r} attention; load the model with attn_implementation='sdpa'"


def _why_missed(module: torch.nn.Module) -> str:
    processor = getattr(module, "processor", None)
    if processor is not None and callable(processor) and "Attn" in type(processor).__name__:
        return f"its processor {type(processor).__name__} does not call PyTorch's attention or diffusers' dispatcher"
    if "attention" in type(module).__name__.lower() and not any(True for _ in module.children()):
        return f"{type(module).__name__} does not call PyTorch's attention"
    return ""
