"""Build a model at full size without memory or time for weights: parameters on meta, buffers for real."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

__all__ = ["kept_in_float32", "without_weights"]


@contextmanager
def without_weights() -> Iterator[None]:
    """While active, every parameter that a module registers lives on the meta device; buffers are left alone.

    A parameter that is on meta already is kept as the object it is, so tied weights stay tied. Initialisers are
    skipped: on meta they would compute nothing and still take most of the time. Only methods of classes are replaced:
    a module that is imported meanwhile can keep a function of `torch.nn.init` for ever, but not a method.
    """
    import torch
    from torch import nn

    register = nn.Module.register_parameter

    def register_on_meta(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and param.device.type != "meta":
            param = nn.Parameter(torch.empty(param.shape, dtype=param.dtype, device="meta"), requires_grad=False)
        register(module, name, param)

    with ExitStack() as undo:
        _replace(nn.Module, "register_parameter", register_on_meta, undo)
        for kind in _self_initialising():
            _replace(kind, "reset_parameters", _nothing, undo)
        for kind in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.LayerNorm, nn.GroupNorm, nn.Embedding):
            _replace(kind, "__init__", _on_meta(vars(kind)["__init__"]), undo)
        with suppress(ImportError):
            from transformers import PreTrainedModel

            _replace(PreTrainedModel, "init_weights", _nothing, undo)
        yield


def _self_initialising() -> list[type]:
    """PyTorch's own layers that fill their parameters in `reset_parameters`."""
    from torch import nn

    kinds = [kind for kind in vars(nn).values() if isinstance(kind, type) and issubclass(kind, nn.Module)]
    bases = {base for kind in kinds for base in kind.__mro__}
    return [kind for kind in bases if "reset_parameters" in vars(kind)]


def _replace(kind: type, name: str, method: Callable[..., None], undo: ExitStack) -> None:
    undo.callback(setattr, kind, name, vars(kind)[name])
    setattr(kind, name, method)


def _on_meta(initialise: Callable[..., None]) -> Callable[..., None]:
    """The constructor of a layer without buffers, with its parameters on meta from the start unless a device is asked for."""
    names = list(inspect.signature(initialise).parameters)

    @functools.wraps(initialise)
    def construct(*args: Any, **kwargs: Any) -> None:
        if "device" in names[len(args) :] and kwargs.get("device") is None:
            kwargs["device"] = "meta"
        initialise(*args, **kwargs)

    return construct


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Stands for an initialiser."""


def kept_in_float32(model: nn.Module, dtype: Any) -> frozenset[str]:
    """Name parts whose parameters stay float32 when the model is loaded in `dtype`, as the model's own class declares.

    diffusers' `_keep_in_fp32_modules` holds for every lower dtype; transformers' of the same name holds for float16
    only (T5's `wo`), its `_keep_in_fp32_modules_strict` for bfloat16 too.
    """
    import torch
    from diffusers import ModelMixin

    if dtype not in (torch.float16, torch.bfloat16):
        return frozenset()
    kept = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if isinstance(model, ModelMixin) or dtype == torch.float16:
        kept |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    return frozenset(kept)
