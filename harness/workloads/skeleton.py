"""Build a model at full size without memory or time for weights: parameters on meta, buffers for real."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

__all__ = ["kept_in_float32", "without_weights"]


@contextmanager
def without_weights() -> Iterator[None]:
    """While active, every parameter that a module registers lives on the meta device; buffers are left alone.

    A parameter that is on meta already is kept as the object it is, so tied weights stay tied. Initialisers are
    skipped: on meta they would compute nothing and still take most of the time.
    """
    import torch
    from torch import nn
    from transformers.initialization import no_init_weights

    register = nn.Module.register_parameter

    def register_on_meta(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and param.device.type != "meta":
            param = nn.Parameter(torch.empty(param.shape, dtype=param.dtype, device="meta"), requires_grad=False)
        register(module, name, param)

    nn.Module.register_parameter = register_on_meta  # type: ignore[method-assign, assignment]
    try:
        with no_init_weights():
            yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


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
