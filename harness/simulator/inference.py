"""Infer what an operator returns from shapes alone, on PyTorch's meta device; remembered for every signature."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from paretune.harness.simulator.layouts import answered_layout
from paretune.harness.simulator.tensor import SimulatedTensor, extent_bytes, signature_of

__all__ = ["Inferred", "Output", "infer", "meta_like", "rebuild"]


_BATCH_NORMS = {torch.ops.aten.native_batch_norm, torch.ops.aten.cudnn_batch_norm}
"""They write the running statistics without saying so in their schema."""


@dataclass(slots=True)
class Output:
    """One returned tensor: new memory (`alias` is None), a view of an argument, or the argument itself (`is_same`)."""

    alias: int | None
    is_same: bool
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    nbytes: int
    numel: int
    signature: int
    is_pinned: bool = False


@dataclass(slots=True)
class Inferred:
    """What an operator returns for one signature, and the device it runs on (-1: the host)."""

    index: int
    outputs: list[Output]
    layout: Any
    """`None` for a single tensor; otherwise how the outputs and plain values are nested."""
    constants: list[Any] = field(default_factory=list)
    is_mutable: bool = False
    written: tuple[int, ...] = ()
    """Which tensor arguments the operator writes into, returned or not."""
    has_new: bool = True
    largest: int = 0
    metas: Any = None
    """Arguments on the meta device, for the cost model."""


def meta_like(tensor: torch.Tensor) -> torch.Tensor:
    """An empty tensor of the same geometry on the meta device, from offset zero."""
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta")


def infer(func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor], index: int) -> Inferred:
    """Run `func` on the meta device; `tensors` are the tensor arguments in order, `index` the device it runs on."""
    metas: dict[int, torch.Tensor] = {}

    def to_meta(tensor: torch.Tensor) -> torch.Tensor:
        return metas.setdefault(id(tensor), meta_like(tensor))

    meta_args, meta_kwargs = tree_map_only(torch.Tensor, to_meta, (args, kwargs))
    meta_kwargs = _on_meta(dict(meta_kwargs), func, tensors)
    result = func(*meta_args, **meta_kwargs)
    if index >= 0:
        result = answered_layout(func, meta_args, result)
    ordered = [metas[id(tensor)] for tensor in tensors]
    inferred = _describe(result, ordered, tensors, index)
    inferred.is_mutable = func._schema.is_mutable
    inferred.written = _written(func, args, kwargs, tensors)
    if kwargs.get("pin_memory"):
        for output in inferred.outputs:
            output.is_pinned = output.alias is None
    inferred.metas = (meta_args, meta_kwargs, result)
    return inferred


def _written(func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> tuple[int, ...]:
    """Positions among the tensors of those that the schema says are written, and of a training batch norm's statistics."""
    declared = func._schema.arguments
    given = [*zip(declared, args), *((one, kwargs[one.name]) for one in declared if one.name in kwargs)]
    marked = [value for one, value in given if one.alias_info is not None and one.alias_info.is_write]
    if func.overloadpacket in _BATCH_NORMS and args[5]:
        marked += args[3:5]
    written = {id(leaf) for leaf in tree_flatten(marked)[0] if isinstance(leaf, torch.Tensor)}
    return tuple(position for position, tensor in enumerate(tensors) if id(tensor) in written)


def _on_meta(kwargs: dict[str, Any], func: Any, tensors: list[torch.Tensor]) -> dict[str, Any]:
    if "device" in kwargs or (not tensors and any(a.name == "device" for a in func._schema.arguments)):
        kwargs["device"] = torch.device("meta")
    for name in ("pin_memory", "generator"):
        if kwargs.get(name) is not None:
            kwargs[name] = None
    return kwargs


def _describe(result: Any, metas: list[torch.Tensor], tensors: list[torch.Tensor], index: int) -> Inferred:
    if isinstance(result, torch.Tensor):
        outputs, layout, constants = [_output(result, metas, tensors, index)], None, []
    else:
        leaves, spec = tree_flatten(result)
        outputs = [_output(leaf, metas, tensors, index) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        constants = [None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in leaves]
        layout = spec
    largest = max((output.numel for output in outputs), default=0)
    has_new = any(output.alias is None for output in outputs)
    return Inferred(index, outputs, layout, constants, has_new=has_new, largest=largest)


def _output(result: torch.Tensor, metas: list[torch.Tensor], tensors: list[torch.Tensor], index: int) -> Output:
    if result.layout is not torch.strided or result.is_nested:
        raise NotImplementedError(
            f"its result is {'nested' if result.is_nested else result.layout}, not strided memory"
        )
    size, stride = tuple(result.shape), result.stride()
    memory = result.untyped_storage()._cdata
    alias, is_same = None, False
    for position, meta in enumerate(metas):
        if result is meta:
            alias, is_same = position, True
            break
        if alias is None and meta.untyped_storage()._cdata == memory:
            alias = position
    where = index
    if alias is not None:
        tensor = tensors[alias]
        where = tensor.sim_storage.index if isinstance(tensor, SimulatedTensor) else -1
    return Output(
        alias=alias,
        is_same=is_same,
        dtype=result.dtype,
        size=size,
        stride=stride,
        offset=int(result.storage_offset()),
        nbytes=extent_bytes(size, stride, result.element_size()),
        numel=result.numel(),
        signature=signature_of(result.dtype, size, stride, where),
    )


def rebuild(inferred: Inferred, made: list[Any]) -> Any:
    """Put the made tensors back into the structure that the operator returned."""
    tensors = iter(made)
    leaves = [next(tensors) if constant is None else constant[0] for constant in inferred.constants]
    return tree_unflatten(leaves, inferred.layout)
