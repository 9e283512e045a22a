"""Operators whose result depends on values: answered from real values where they exist, refused by name where not."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from paretune.harness.simulator.adopt import adopt
from paretune.harness.simulator.dispatch import SPECIAL, execute
from paretune.harness.simulator.errors import require_value
from paretune.harness.simulator.machine import Machine
from paretune.harness.simulator.storage import Storage
from paretune.harness.simulator.tensor import SimulatedTensor, make_tensor

__all__: list[str] = []

aten = torch.ops.aten


def _scalar(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`.item()`, `bool()`, `equal`: the host waits for the card."""
    _wait(machine, args)
    return func(*tree_map_only(torch.Tensor, lambda tensor: _value(machine, func, tensor), args), **kwargs)


def _sized_by_values(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`nonzero`, `masked_select`, `unique`: the size of the result comes from the values, so the host waits."""
    _wait(machine, args)
    index = adopt(args[0]).sim_storage.index
    result = func(*tree_map_only(torch.Tensor, lambda tensor: _value(machine, func, tensor), args), **kwargs)
    return tree_map_only(torch.Tensor, lambda value: _wrap(machine, value, index), result)


def _indexed(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Indexing; boolean indices become positions first, which needs their values."""
    indices = args[1]
    if not any(isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8) for item in indices):
        return execute(machine, func, args, kwargs)
    positions: list[Any] = []
    for item in indices:
        if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
            found = _sized_by_values(machine, aten.nonzero.default, (item,), {})
            positions.extend(found.unbind(1))
        else:
            positions.append(item)
    return execute(machine, func, (args[0], positions, *args[2:]), kwargs)


def _value(machine: Machine, func: Any, tensor: torch.Tensor) -> torch.Tensor:
    return require_value(tensor, func) if isinstance(tensor, SimulatedTensor) else tensor


def _wrap(machine: Machine, value: torch.Tensor, index: int) -> SimulatedTensor:
    storage = Storage(machine, index, value.numel() * value.element_size())
    return make_tensor(storage, value.dtype, tuple(value.shape), value.stride(), value=value)


def _wait(machine: Machine, args: tuple[Any, ...]) -> None:
    for item in args:
        if isinstance(item, SimulatedTensor) and item.sim_storage.index >= 0:
            machine.traffic.num_synchronisations += 1
            machine.wait(machine.cards[item.sim_storage.index].current.ready_s)


SPECIAL.update(
    dict.fromkeys(
        (aten._local_scalar_dense.default, aten.is_nonzero.default, aten.equal.default, aten.allclose.default), _scalar
    )
)
SPECIAL.update(
    dict.fromkeys(
        (
            aten.nonzero.default,
            aten.masked_select.default,
            aten._unique2.default,
            aten.unique_consecutive.default,
            aten.unique_dim.default,
            aten.bincount.default,
            aten.repeat_interleave.Tensor,
            aten._pack_padded_sequence.default,
        ),
        _sized_by_values,
    )
)
SPECIAL.update(dict.fromkeys((aten.index.Tensor, aten.index_put_.default, aten.index_put.default), _indexed))
