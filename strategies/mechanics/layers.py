"""What a device map may place inside one model: blocks whole, every other module that holds tensors by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from paretune.strategies.errors import Unsupported
from paretune.strategies.mechanics.blocks import find_blocks, own_bytes
from paretune.strategies.mechanics.cells import own_tensors, owners_of
from paretune.strategies.mechanics.planning import Item

__all__ = ["Layers"]


@dataclass(frozen=True, kw_only=True)
class Layers:
    """The layers of ``component`` by name, in order.

    parents: names of those whose own tensors are read between calls of others: modules that contain others, and
    containers that are never called. They live where the model's inputs are.
    """

    component: nn.Module
    modules: Mapping[str, nn.Module]
    parents: frozenset[str]

    @classmethod
    def of(cls, component: nn.Module) -> Layers:
        """Divide the component."""
        names = {module: name for name, module in component.named_modules()}
        block_of = {owner: block for block in reversed(find_blocks(component)) for owner in owners_of(block.module)}
        found: dict[str, nn.Module] = {}
        for owner in owners_of(component):
            block = block_of.get(owner)
            name, module = (names[owner], owner) if block is None else (block.name, block.module)
            found.setdefault(name, module)
        inner = set(found.values())
        parents = {name for name, module in found.items() if _is_parent(module, inner)}
        return cls(component=component, modules=found, parents=frozenset(parents))

    def owners(self, name: str) -> list[nn.Module]:
        """The modules whose own tensors move with this layer."""
        return [self.modules[name]] if name in self.parents else owners_of(self.modules[name])

    def item(self, names: Sequence[str], main: str) -> Item:
        """Layers that are planned as one, under the first one's name."""
        owners = [owner for name in names for owner in self.owners(name)]
        is_fixed = any(name in self.parents for name in names)
        return Item(name=names[0], num_bytes=own_bytes(owners), fixed=main if is_fixed else None)

    def clusters(self) -> list[list[str]]:
        """Names of layers that share weights, together; in the order of the first of each."""
        cluster_of: dict[int, list[str]] = {}
        clusters: list[list[str]] = []
        for name in self.modules:
            storages = self._storages(name)
            mine = [name]
            for found in {id(c): c for s in storages if (c := cluster_of.get(s)) is not None}.values():
                mine = found + mine
                clusters.remove(found)
            clusters.append(mine)
            cluster_of |= dict.fromkeys((s for member in mine for s in self._storages(member)), mine)
        return sorted(clusters, key=lambda names: list(self.modules).index(names[0]))

    def refuse_torn(self, chosen: Mapping[str, str]) -> None:
        """Raise ``Unsupported`` where a map puts layers that share a weight on different devices."""
        where: dict[int, str] = {}
        for name in self.modules:
            for storage in self._storages(name):
                other = where.setdefault(storage, name)
                if chosen[other] != chosen[name]:
                    raise Unsupported(
                        f"device_map: {other or 'the model itself'} and {name} share a weight and cannot be on "
                        f"{chosen[other]} and {chosen[name]}. Give them one device in `map`."
                    )

    def _storages(self, name: str) -> list[int]:
        return [t.untyped_storage()._cdata for owner in self.owners(name) for t in own_tensors(owner)]


def _is_parent(module: nn.Module, layers: set[nn.Module]) -> bool:
    never_called = type(module).forward is nn.Module.forward
    return never_called or any(child in layers for child in module.modules() if child is not module)
