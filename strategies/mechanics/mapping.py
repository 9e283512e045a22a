"""Carry out device maps: put parts where a map says and let every call find its inputs there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from paretune.strategies.base import Undo
from paretune.strategies.errors import Unsupported
from paretune.strategies.facade import present
from paretune.strategies.mechanics.arguments import to_device
from paretune.strategies.mechanics.blocks import own_bytes
from paretune.strategies.mechanics.capabilities import device_module
from paretune.strategies.mechanics.cells import owners_of
from paretune.strategies.mechanics.entries import bracketed, public_methods, subclass_of
from paretune.strategies.mechanics.host_store import DiskStore
from paretune.strategies.mechanics.layers import Layers
from paretune.strategies.mechanics.link import Link
from paretune.strategies.mechanics.placement import place
from paretune.strategies.mechanics.planning import DISK, HOST, Item, PlacementError, assign
from paretune.strategies.mechanics.reading import Calls, read_across
from paretune.strategies.mechanics.residency import Residency
from paretune.strategies.mechanics.transfer import move_tensors
from paretune.strategies.mechanics.units import Group, Keep

if TYPE_CHECKING:
    from paretune.strategies.parts import Parts

__all__ = ["Mapped", "map_layers", "map_pipeline"]


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """What is wanted. device: where inputs come from and outputs go, of whose kind the numbered devices are.

    budgets: bytes by device name, ``None`` for everything the devices have free. explicit: a map given outright.
    """

    device: torch.device
    balanced: bool
    budgets: dict[str, int] | None
    explicit: dict[str, Any] | None
    folder: str | None

    @property
    def main(self) -> str:
        """The name of the device that computes what the host and the disk hold."""
        return str(self.device.index or 0)

    def named(self, name: str) -> torch.device:
        """The device a map's name means. Raises ``Unsupported`` for one that does not exist."""
        if name in (HOST, DISK):
            return torch.device("cpu")
        if self.device.type == "cpu":
            raise Unsupported(f"device_map: device {name!r} does not exist: this machine computes on the cpu alone.")
        count = device_module(self.device).device_count()
        if not name.isdigit() or int(name) >= count:
            raise Unsupported(f"device_map: device {name!r} does not exist. Write 0 to {count - 1}, cpu or disk.")
        return torch.device(self.device.type, int(name))

    def room(self) -> dict[str, int | None]:
        """Bytes by device: the budgets asked for, or what is free now, the host without limit."""
        if self.budgets is not None:
            for name in self.budgets:
                self.named(name)
            return dict(self.budgets)
        module = device_module(self.device)
        free: dict[str, int | None] = {str(i): module.mem_get_info(i)[0] for i in range(module.device_count())}
        return {**free, HOST: None, **({DISK: None} if self.folder else {})}


@dataclass(frozen=True, kw_only=True)
class _Around:
    """Where the calls around a part compute, and how many are in progress."""

    device: torch.device
    calls: Calls


def map_pipeline(parts: Parts, wanted: Mapped, undo: Undo) -> dict[str, str]:
    """Place whole components; each gets its inputs on its own device, and its outputs return to the pipeline's."""
    items = [Item(name=name, num_bytes=own_bytes(owners_of(module))) for name, module in parts.modules.items()]
    chosen = _names_to_devices(items, wanted, known=set(parts.modules))
    around = Calls()
    for name, module in parts.modules.items():
        if chosen[name] in (HOST, DISK):
            _offload(module, {name: module}, wanted, on_disk={name} if chosen[name] == DISK else set(), undo=undo)
        else:
            device = wanted.named(chosen[name])
            move_tensors(owners_of(module), device, undo)
            if device != wanted.device:
                _route_component(module, device, wanted.device, around, undo)
    _bracket(parts.root, around, undo)
    _tell(parts.root, chosen, parts.undo_plan, undo)
    return chosen


def map_layers(parts: Parts, wanted: Mapped, undo: Undo) -> dict[str, str]:
    """Place the blocks and the other layers of one model; what lies directly on a parent stays with the caller."""
    component = next(iter(parts.modules.values()))
    layers = Layers.of(component)
    chosen = _layers_to_devices(layers, wanted)
    around = Calls()
    for index in sorted(set(chosen.values()) - {HOST, DISK}):
        names = [name for name in chosen if chosen[name] == index]
        where = _Around(device=wanted.device, calls=around)
        _place_layers(layers, names, device=wanted.named(index), around=where, undo=undo)
    away = {name: module for name, module in layers.modules.items() if chosen[name] in (HOST, DISK)}
    if away:
        _offload(component, away, wanted, on_disk={name for name in away if chosen[name] == DISK}, undo=undo)
    elif "device" not in vars(component):
        present(component, undo, device=wanted.device)
    _bracket(component, around, undo)
    _tell(parts.root, chosen, parts.undo_plan, undo)
    return chosen


def _place_layers(layers: Layers, names: list[str], *, device: torch.device, around: _Around, undo: Undo) -> None:
    """Put the layers of one device there, and lead calls and reads to it."""
    for name in names:
        move_tensors(layers.owners(name), device, undo)
    if device == around.device:
        return
    inside = Calls()
    modules = list(dict.fromkeys(layers.modules[name] for name in names))
    for module in modules:
        _route_calls(module, device, around.device, undo)
        inside.follow(module, undo)
    read_across(modules, around.calls, inside, around.device, undo)


def _layers_to_devices(layers: Layers, wanted: Mapped) -> dict[str, str]:
    """Layers that share a weight are planned as one."""
    component_names = {name for name, _ in layers.component.named_modules()}
    if wanted.explicit is not None:
        items = [layers.item([name], wanted.main) for name in layers.modules]
        chosen = _explicit(items, wanted, component_names)
        layers.refuse_torn(chosen)
        return chosen
    clusters = layers.clusters()
    placed = _names_to_devices([layers.item(names, wanted.main) for names in clusters], wanted, component_names)
    return {name: placed[names[0]] for names in clusters for name in names}


def _names_to_devices(items: list[Item], wanted: Mapped, known: set[str]) -> dict[str, str]:
    if wanted.explicit is not None:
        return _explicit(items, wanted, known)
    try:
        return assign(items, wanted.room(), balanced=wanted.balanced, overflow=(HOST, DISK))
    except PlacementError as error:
        raise Unsupported(f"device_map: {error}") from error


def _explicit(items: list[Item], wanted: Mapped, known: set[str]) -> dict[str, str]:
    """The map's own words: the longest name that an item begins with decides, and the empty name is everything."""
    table = {name: str(device) for name, device in (wanted.explicit or {}).items()}
    for name, device in table.items():
        if name and name not in known:
            raise Unsupported(f"device_map.map: there is no module named {name!r}.")
        wanted.named(device)
    chosen: dict[str, str] = {}
    for item in items:
        keys = [key for key in table if not key or item.name == key or item.name.startswith(f"{key}.")]
        if not keys and item.fixed is None:
            raise Unsupported(f"device_map.map: {item.name!r} is given no device. Add it, or a module around it.")
        chosen[item.name] = item.fixed or table[max(keys, key=len)]
    return chosen


def _offload(
    component: nn.Module,
    away: Mapping[str, nn.Module],
    wanted: Mapped,
    *,
    on_disk: set[str],
    undo: Undo,
) -> None:
    if on_disk and wanted.folder is None:
        raise Unsupported("device_map: the map uses the disk. Set offload_folder to a folder for the weights.")

    def grouping(model: nn.Module) -> list[Group]:
        return [
            Group(
                name=name,
                owners=tuple(owners_of(module)),
                triggers=(module,),
                keep=Keep.CALL if module is not model else Keep.ENTRY,
                on_disk=name in on_disk,
            )
            for name, module in away.items()
        ]

    disk = DiskStore(Path(wanted.folder)) if wanted.folder is not None else None
    place(Residency(component, grouping, Link(wanted.device), disk=disk), undo)


def _route_calls(module: nn.Module, device: torch.device, outside: torch.device, undo: Undo) -> None:
    """Inputs of every call go to where the module is, outputs back to where the calls around it compute."""

    def before(called: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return to_device(args, device), to_device(kwargs, device)

    def after(called: nn.Module, args: Any, output: Any) -> Any:
        return to_device(output, outside)

    undo(module.register_forward_pre_hook(before, prepend=True, with_kwargs=True).remove)
    undo(module.register_forward_hook(after).remove)


def _route_component(
    component: nn.Module, device: torch.device, outside: torch.device, around: Calls, undo: Undo
) -> None:
    """As ``_route_calls``, for the component's public methods too, where they are called from outside of it.

    To its callers the component says that it is where they are, to its own code where it really is.
    """
    inside = Calls()
    _route_calls(component, device, outside, undo)
    inside.follow(component, undo)
    read_across([component], around, inside, outside, undo)
    original = type(component)

    def routed(method: Any) -> Any:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if inside.depth:
                return method(*args, **kwargs)
            own, *rest = args
            with inside.entry():
                result = method(own, *to_device(rest, device), **to_device(kwargs, device))
            return to_device(result, outside)

        return call

    members = {name: routed(method) for name, method in public_methods(original, beyond=nn.Module)}
    members["device"] = property(lambda self: device if inside.depth else outside)
    component.__class__ = subclass_of(original, members)
    undo(lambda: setattr(component, "__class__", original))


def _bracket(root: Any, around: Calls, undo: Undo) -> None:
    """Count the calls into ``root``, a pipeline or a module."""
    original = type(root)
    beyond = nn.Module if isinstance(root, nn.Module) else object
    members = {name: bracketed(method, around.entry) for name, method in public_methods(original, beyond=beyond)}
    if callable(root):
        members["__call__"] = bracketed(original.__call__, around.entry)
    root.__class__ = subclass_of(original, members)
    undo(lambda: setattr(root, "__class__", original))


def _tell(root: Any, chosen: dict[str, str], undo_plan: Callable[[], None] | None, undo: Undo) -> None:
    """Let ``hf_device_map`` and ``reset_device_map()`` answer under the names that accelerate's users know."""
    table = {name: int(device) if device.isdigit() else device for name, device in chosen.items()}
    present(root, undo, hf_device_map=table, reset_device_map=undo_plan)
