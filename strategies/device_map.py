"""Spread a pipeline's components, or one model's layers, over devices, the host and the disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from paretune.strategies.base import Facts, PipelineStrategy, Undo, tunable
from paretune.strategies.errors import PlanError
from paretune.strategies.rules import Excludes, Forbids, Needs
from paretune.strategies.sizes import SizeError, parse_size

if TYPE_CHECKING:
    import torch

    from paretune.strategies.parts import Parts

__all__ = ["DeviceMap", "Table"]

_SAME = "both decide where the weights live"


class Table(dict[str, Any]):
    """A mapping that is a value: it never changes and can be a key. Keys are texts."""

    def __init__(self, items: Mapping[Any, Any]) -> None:
        super().__init__({str(key): value for key, value in items.items()})

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@dataclass(frozen=True, kw_only=True)
class DeviceMap(PipelineStrategy):
    """Without a component, whole components are spread over the devices; with one, the layers of that component.

    ``mode`` fills the devices evenly (``balanced``; ``auto`` is the same) or one after the other (``sequential``).
    ``max_memory`` limits devices, ``cpu`` and ``disk`` (``{"0": "10GiB", "1": "10GiB", "cpu": "30GiB"}``); what it does
    not name gets nothing. ``map`` gives names of modules their device outright: an index, ``cpu`` or ``disk``. What is
    on the host or on disk comes to the first device when it is called. The map in force is ``model.hf_device_map``,
    and ``model.reset_device_map()`` undoes it.

    Raises ``Unsupported`` when the budgets do not hold the model, or names are unknown or left out.
    """

    places_weights: ClassVar[bool] = True
    rules = (
        Excludes(other="device_map", because=_SAME),
        Forbids(when=lambda s: s.map is not None and s.max_memory is not None, because="a map leaves nothing to plan"),
        Needs(capability="device_memory", because="it divides the memory of devices", when=lambda s: s.map is None),
    )

    mode: str = tunable(
        default="balanced",
        choices=("balanced", "auto", "sequential"),
        when=lambda s: s.map is None,
        help="how devices are filled",
    )
    max_memory: Mapping[str, int | str] | None = tunable(
        default=None, choices=(None,), free=True, help="sizes by device index, cpu and disk"
    )
    map: Mapping[str, int | str] | None = tunable(
        default=None, choices=(None,), free=True, help="device by name of component or module"
    )
    offload_folder: str | None = tunable(
        default=None, choices=(None,), free=True, help="folder for what is placed on disk"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_memory", "map"):
            value = getattr(self, name)
            if value is not None:
                if not isinstance(value, Mapping):
                    raise PlanError(f'device_map.{name}: {value!r} is not a mapping. Write {{"0": "10GiB"}}.')
                object.__setattr__(self, name, Table(value))
                if len(getattr(self, name)) < len(value):
                    raise PlanError(f"device_map.{name}: {value!r} names a device twice, as a text and as a number.")
        for device, size in (self.max_memory or {}).items():
            try:
                parse_size(size, name=f"device_map.max_memory.{device}")
            except SizeError as error:
                raise PlanError(str(error)) from error

    def apply(self, parts: Parts, device: torch.device, undo: Undo) -> Facts:
        from paretune.strategies.mechanics.mapping import Mapped, map_layers, map_pipeline

        budgets = {name: parse_size(size) for name, size in self.max_memory.items()} if self.max_memory else None
        wanted = Mapped(
            device=device,
            balanced=self.mode != "sequential",
            budgets=budgets,
            explicit=dict(self.map) if self.map is not None else None,
            folder=self.offload_folder,
        )
        if len(parts.modules) == 1:
            return {"hf_device_map": map_layers(parts, wanted, undo)}
        return {"hf_device_map": map_pipeline(parts, wanted, undo)}
