"""Arguments and results of a module's call, as something that can be compared, and made again without running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from paretune.harness.simulator.storage import Storage
from paretune.harness.simulator.tensor import SimulatedTensor, make_tensor

if TYPE_CHECKING:
    from paretune.harness.simulator.machine import Machine

__all__ = ["PLAIN", "Results", "describe", "signature", "tensor_signature"]

PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device)


def tensor_signature(tensor: SimulatedTensor) -> tuple[int, bool]:
    """Geometry and device of a tensor, and whether it has values that a result could depend on."""
    return tensor.sim_signature, tensor.sim_value is not None and not tensor.sim_storage.values_lost


def signature(value: Any) -> Any:
    """A hashable stand-in for the arguments of a call; `None` when one of them is of a kind that is not understood."""
    if isinstance(value, SimulatedTensor):
        return tensor_signature(value)
    if isinstance(value, PLAIN):
        return (type(value), value)
    if isinstance(value, dict):
        parts = [(key, signature(item)) for key, item in value.items()]
        return None if any(part is None for _, part in parts) else ("dict", *parts)
    if isinstance(value, list | tuple):
        parts = [signature(item) for item in value]
        return None if any(part is None for part in parts) else (type(value), *parts)
    return None


@dataclass(frozen=True, slots=True)
class Results:
    """What a call returned: tensors over new memory, arguments that were passed through, and plain values."""

    leaves: tuple[_Constant | _Passed | _Made, ...]
    layout: Any
    new_bytes: int
    """What the results keep alive beyond the arguments, as the ledgers count it."""

    def numbers(self) -> set[int]:
        """Identities of the new storages at the time of the description."""
        return {leaf.number for leaf in self.leaves if isinstance(leaf, _Made)}

    def make(self, machine: Machine, args: Any, kwargs: Any, storages: Mapping[int, Storage] | None = None) -> Any:
        """The same results for another call; `storages` are those that were made already, by their numbers."""
        made = dict(storages or {})
        given = tree_flatten((args, kwargs))[0]
        return tree_unflatten([leaf.make(machine, made, given) for leaf in self.leaves], self.layout)


def describe(result: Any, args: Any, kwargs: Any) -> Results | None:
    """How to make the results of a call again; `None` where that is not possible: values, or views of arguments."""
    leaves, layout = tree_flatten(result)
    given = tree_flatten((args, kwargs))[0]
    positions = {id(leaf): position for position, leaf in enumerate(given)}
    lent = {id(leaf.sim_storage) for leaf in given if isinstance(leaf, SimulatedTensor)}
    described: list[_Constant | _Passed | _Made] = []
    counted: dict[int, int] = {}
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            if not isinstance(leaf, PLAIN):
                return None
            described.append(_Constant(leaf))
        elif id(leaf) in positions:
            described.append(_Passed(positions[id(leaf)]))
        elif not isinstance(leaf, SimulatedTensor) or leaf.sim_value is not None or id(leaf.sim_storage) in lent:
            return None
        else:
            counted[id(leaf.sim_storage)] = leaf.sim_storage.counted_bytes
            described.append(_Made.of(leaf))
    return Results(tuple(described), layout, sum(counted.values()))


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Any

    def make(self, machine: Machine, made: dict[int, Storage], given: list[Any]) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class _Passed:
    """An argument that was returned as it came in."""

    position: int

    def make(self, machine: Machine, made: dict[int, Storage], given: list[Any]) -> Any:
        return given[self.position]


@dataclass(frozen=True, slots=True)
class _Made:
    """One tensor over new memory; those that shared memory share it again."""

    number: int
    index: int
    nbytes: int
    label: tuple[str, str]
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, tensor: SimulatedTensor) -> _Made:
        storage = tensor.sim_storage
        place = (id(storage), storage.index, storage.nbytes, storage.label)
        return cls(*place, tensor.dtype, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))

    def make(self, machine: Machine, made: dict[int, Storage], given: list[Any]) -> SimulatedTensor:
        if self.number not in made:
            made[self.number] = Storage(machine, self.index, self.nbytes)
            made[self.number].relabel(*self.label)
        return make_tensor(made[self.number], self.dtype, self.size, self.stride, offset=self.offset)
