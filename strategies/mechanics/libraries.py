"""Hand linear layers to a quantisation library, and take them back."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from paretune.strategies.base import Undo
from paretune.strategies.errors import Unsupported

__all__ = ["engine_of"]

Engine = Callable[[dict[str, nn.Linear], str, Undo], None]


def engine_of(name: str, device: torch.device) -> Engine:
    """The function that packs layers with library ``name``. Raises ``Unsupported`` with what is missing."""
    if importlib.util.find_spec(name) is None:
        raise Unsupported(f"quantize: package {name!r} is not installed. Install it, or use engine=plain.")
    return {"torchao": _torchao, "bitsandbytes": _bitsandbytes}[name]


def _keep(layers: dict[str, nn.Linear], undo: Undo) -> None:
    for layer in layers.values():
        undo(partial(layer._parameters.__setitem__, "weight", layer.weight))


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
    for layer in layers.values():
        data = layer.weight.data
        if method == "nf4":
            packed = bitsandbytes.nn.Params4bit(data, requires_grad=False, quant_type="nf4")
        else:
            packed = bitsandbytes.nn.Int8Params(data, requires_grad=False)
        layer._parameters["weight"] = cast(nn.Parameter, packed)
