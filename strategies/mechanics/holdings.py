"""The units of one component and where their weights wait on the host."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import nn

from paretune.strategies.errors import Unsupported
from paretune.strategies.mechanics.bundle import Bundle
from paretune.strategies.mechanics.cells import own_tensors, owners_of
from paretune.strategies.mechanics.host_store import FoundStore, HostStore
from paretune.strategies.mechanics.units import Group, Keep, Unit, units_of

__all__ = ["Grouping", "Holdings"]

Grouping = Callable[[nn.Module], list[Group]]


class Holdings:
    """Forms units from a component's modules, and anew when its tensors were replaced.

    store: where weights wait; disk: where those of groups that are ``on_disk`` do. needs: the unit that holds a
    module's own tensors. by_trigger: the units that a module's call needs.
    """

    def __init__(
        self, component: nn.Module, grouping: Grouping, *, store: HostStore | None, disk: HostStore | None
    ) -> None:
        self.component = component
        self.store = store or FoundStore()
        self.disk = disk
        self.units: list[Unit] = []
        self.bundles: list[Bundle] = []
        self.needs: dict[nn.Module, Unit] = {}
        self.by_trigger: dict[nn.Module, list[Unit]] = {}
        self._grouping = grouping
        self._homes: dict[torch.Tensor, torch.device] = {}

    def form(self) -> None:
        """Form the units and bring their weights to the host. Raises ``Unsupported`` before anything is changed."""
        tensors = [tensor for owner in owners_of(self.component) for tensor in own_tensors(owner)]
        if any(tensor.is_meta for tensor in tensors):
            raise Unsupported(f"{type(self.component).__name__} has weights on the meta device. Load them first.")
        self.units = units_of(self._grouping(self.component))
        self.bundles = list(dict.fromkeys(bundle for unit in self.units for bundle in unit.bundles))
        self.needs = {owner: unit for unit in self.units for owner in unit.group.owners}
        self.by_trigger = {}
        for unit in self.units:
            for trigger in unit.group.triggers:
                self.by_trigger.setdefault(trigger, []).append(unit)
        self._bring_to_host()

    @property
    def largest_passing_bytes(self) -> int:
        """The largest contiguous copy among those that come and go."""
        return max((bundle.num_bytes for bundle in self._passing()), default=0)

    @property
    def are_replaced(self) -> bool:
        """Whether someone gave a tensor other data while it waited on the host."""
        return any(bundle.is_replaced() for bundle in self.bundles)

    def restore(self) -> None:
        """Give every tensor storage of its own again, on the device it was found on."""
        for bundle in self.bundles:
            bundle.restore()

    def close(self) -> None:
        """Let go of the host's buffers and files."""
        self.store.close()
        if self.disk is not None:
            self.disk.close()
        self.units, self.bundles, self.needs, self.by_trigger = [], [], {}, {}

    def _bring_to_host(self) -> None:
        passing = self._passing()
        on_disk = {b for unit in self.units if unit.group.on_disk for b in unit.bundles}
        ordered = list(dict.fromkeys((*passing, *self.bundles)))
        self._fill(self.store, [b for b in ordered if b not in on_disk], passing)
        if self.disk is not None and on_disk:
            self._fill(self.disk, [b for b in ordered if b in on_disk], passing)

    def _fill(self, store: HostStore, bundles: list[Bundle], passing: Collection[Bundle]) -> None:
        sizes = [b.num_bytes if b in passing or store.pins_resident else 0 for b in bundles]
        for kept in store.buffers(sizes):
            for index, flat in kept:
                self._remember_home(bundles[index])
                bundles[index].keep_on_host(flat)

    def _remember_home(self, bundle: Bundle) -> None:
        """Units may be formed anew from tensors that wait on the host; they still go home to where they were found."""
        for cell in bundle.cells:
            cell.home = self._homes.setdefault(cell.looks[0].tensor, cell.home)

    def _passing(self) -> dict[Bundle, None]:
        return {b: None for unit in self.units if unit.group.keep is not Keep.ALWAYS for b in unit.bundles}
