"""What cutting a call into tiles costs where weights are offloaded: how often they are brought, unless they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from paretune.strategies.mechanics.residency import Residency, residency_of

__all__ = ["TiledCalls"]

_InTiles = Callable[[Callable[[torch.Tensor], Any], torch.Tensor], Any]


class _Most(NamedTuple):
    """The most loads of a tile after the first, and the most groups with their bytes, over all calls so far."""

    loads: int = 0
    groups: int = 0
    group_bytes: int = 0


class TiledCalls(Mapping[str, Any]):
    """Runs calls in tiles and says of the last one, for each entry: ``num_tiles``, and under an offload ``num_groups``
    and ``num_group_loads``, how many groups came to the device for it; ``group_bytes`` is what all of them weigh.

    fixed: what is known beforehand and told with it. keeps_weights: what a call has brought stays until it returns.
    """

    def __init__(self, fixed: Mapping[str, Any], *, keeps_weights: bool) -> None:
        self._told: dict[str, Any] = dict(fixed)
        self._keeps_weights = keeps_weights
        self._most: dict[str, _Most] = {}

    def run(
        self,
        model: nn.Module,
        entry: str,
        in_tiles: _InTiles,
        function: Callable[[torch.Tensor], Any],
        whole: torch.Tensor,
    ) -> Any:
        """``in_tiles(function, whole)``, counted."""
        residency, loads = residency_of(model), list[int]()

        def counted(tile: torch.Tensor) -> Any:
            before = _num_fetches(residency)
            answer = function(tile)
            loads.append(_num_fetches(residency) - before)
            return answer

        with _keeping(residency if self._keeps_weights else None):
            answer = in_tiles(counted, whole)
        self._told[entry] = {"num_tiles": len(loads), **self._cost(entry, residency, loads)}
        return answer

    def _cost(self, entry: str, residency: Residency | None, loads: list[int]) -> dict[str, int]:
        """Groups brought and loads. A simulated device repeats tiles that were seen to repeat themselves without
        bringing anything: such a tile counts as much as the most that one after the first was seen to bring."""
        if residency is None:
            return {}
        seen = self._most.get(entry, _Most())
        brought = [unit for unit in residency.units if unit.num_fetches]
        most = self._most[entry] = _Most(
            loads=max(seen.loads, *loads[1:], 0),
            groups=max(seen.groups, len(brought)),
            group_bytes=max(seen.group_bytes, sum(unit.num_bytes for unit in brought)),
        )
        if not most.groups:
            return {}
        total = sum(most.loads if 2 * number < most.loads else number for number in loads)
        return {"num_groups": most.groups, "num_group_loads": total, "group_bytes": most.group_bytes}

    def __getitem__(self, name: str) -> Any:
        return self._told[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._told)

    def __len__(self) -> int:
        return len(self._told)


def _num_fetches(residency: Residency | None) -> int:
    return sum(unit.num_fetches for unit in residency.units) if residency is not None else 0


@contextmanager
def _keeping(residency: Residency | None) -> Iterator[None]:
    if residency is None:
        yield
        return
    before, residency.keeps_passing = residency.keeps_passing, True
    try:
        yield
    finally:
        residency.keeps_passing = before
