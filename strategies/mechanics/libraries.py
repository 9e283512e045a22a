"""Hand linear layers to a quantisation library, and take them back."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial, partialmethod
from typing import Any

import torch
from torch import nn

from paretune.strategies.base import Undo
from paretune.strategies.errors import Unsupported
from paretune.strategies.mechanics.override import Specialised

__all__ = ["engine_of"]

Engine = Callable[[dict[str, nn.Linear], str, Undo], None]


def engine_of(name: str, device: torch.device) -> Engine:
    """The function that packs layers with library ``name``. Raises ``Unsupported`` with what is missing."""
    if importlib.util.find_spec(name) is None:
        raise Unsupported(f"quantize: package {name!r} is not installed. Install it, or use engine=plain.")
    return {"torchao": _torchao, "bitsandbytes": _bitsandbytes}[name]


def _keep(layers: dict[str, nn.Linear], undo: Undo) -> None:
    for layer in layers.values():
        undo(partial(layer._parameters.__setitem__, "weight", layer._parameters["weight"]))


def _torchao(layers: dict[str, nn.Linear], method: str, undo: Undo) -> None:
    from torchao.quantization import (
        Float8WeightOnlyConfig,
        Int4WeightOnlyConfig,
        Int8WeightOnlyConfig,
        quantize_,
    )

    configs: dict[str, Any] = {
        "int8_weight_only": Int8WeightOnlyConfig,
        "int4_weight_only": Int4WeightOnlyConfig,
        "float8_weight_only": Float8WeightOnlyConfig,
    }
    _keep(layers, undo)
    try:
        for layer in layers.values():
            quantize_(layer, configs[method]())
    except (ImportError, NotImplementedError, AssertionError, RuntimeError) as error:
        raise Unsupported(f"quantize: torchao cannot do {method} here: {error} Use engine=plain.") from error
    for layer in layers.values():
        vars(layer).pop("extra_repr", None)


def _bitsandbytes(layers: dict[str, nn.Linear], method: str, undo: Undo) -> None:
    import bitsandbytes

    _keep(layers, undo)
    special = Specialised(undo)
    pack, forward = (_pack_nf4, _forward_nf4) if method == "nf4" else (_pack_int8, _forward_int8)
    for layer in layers.values():
        codes, state = pack(bitsandbytes, layer.weight.detach())
        layer._parameters["weight"] = nn.Parameter(codes, requires_grad=False)
        layer.__dict__["paretune_state"] = state
        undo(partial(layer.__dict__.pop, "paretune_state"))
        special.apply(layer, forward=partialmethod(forward, bitsandbytes))


def _pack_nf4(library: Any, weight: torch.Tensor) -> tuple[torch.Tensor, Any]:
    codes, state = library.functional.quantize_4bit(weight.contiguous(), blocksize=64, quant_type="nf4")
    return codes, state


def _pack_int8(library: Any, weight: torch.Tensor) -> tuple[torch.Tensor, Any]:
    state = library.MatmulLtState()
    state.threshold, state.has_fp16_weights = 6.0, False
    state.CB, state.SCB, _ = library.functional.int8_vectorwise_quant(weight.half())
    return state.CB, state


def _forward_nf4(self: Any, library: Any, input: torch.Tensor) -> torch.Tensor:
    self.paretune_state.to(input.device)
    answer: torch.Tensor = library.matmul_4bit(input, self.weight.t(), quant_state=self.paretune_state, bias=self.bias)
    return answer


def _forward_int8(self: Any, library: Any, input: torch.Tensor) -> torch.Tensor:
    state = self.paretune_state
    state.CB, state.SCB = self.weight.data, state.SCB.to(input.device)
    answer: torch.Tensor = library.matmul(input, state.CB, bias=self.bias, state=state)
    return answer
