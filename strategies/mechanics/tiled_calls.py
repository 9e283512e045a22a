"""What cutting a call into tiles costs where weights are offloaded: how often they are brought, unless they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from paretune.strategies.mechanics.residency import Residency, residency_of

__all__ = ["TiledCalls"]

_InTiles = Callable[[Callable[[torch.Tensor], Any], torch.Tensor], Any]


class TiledCalls(Mapping[str, Any]):
    """Runs calls in tiles and says of the last one, for each entry: ``num_tiles``, and under an offload ``num_groups``
    and ``num_group_loads``, how many groups came to the device for it; ``group_bytes`` is what all of them weigh.

    fixed: what is known beforehand and told with it. keeps_weights: what a call has brought stays until it returns.
    """

    def __init__(self, fixed: Mapping[str, Any], *, keeps_weights: bool) -> None:
        self._told: dict[str, Any] = dict(fixed)
        self._keeps_weights = keeps_weights

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
        self._told[entry] = {"num_tiles": len(loads), **self._cost(residency, loads)}
        return answer

    def _cost(self, residency: Residency | None, loads: list[int]) -> dict[str, int]:
        """A simulated device repeats a tile that was seen to repeat itself without bringing anything: it counts alike."""
        if residency is None or not any(loads):
            return {}
        total = latest = 0
        for number in loads:
            latest = number if number or self._keeps_weights else latest
            total += latest
        brought = [unit for unit in residency.units if unit.num_fetches]
        sizes = sum(unit.num_bytes for unit in brought)
        return {"num_groups": len(brought), "num_group_loads": total, "group_bytes": sizes}

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
