"""Put one component under a residency: the steps that every offload strategy shares."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from paretune.strategies.base import Undo
from paretune.strategies.facade import present
from paretune.strategies.mechanics.entries import watch
from paretune.strategies.mechanics.residency import Residency

__all__ = ["execution_device", "place"]


def place(residency: Residency, undo: Undo) -> dict[str, Any]:
    """Start ``residency`` on its component and connect it; returns the facts that every such strategy reports.

    From then on ``component.device`` answers the device that it computes on. Raises ``Unsupported``.
    """
    undo(residency.close)
    residency.start()
    watch(residency, undo)
    component = residency.component
    if "device" not in vars(component):
        present(component, undo, device=residency.link.device)
    return {
        "num_groups": len(residency.units),
        "largest_group_bytes": max((unit.num_bytes for unit in residency.units), default=0),
        "pinned_bytes": residency.held.store.pinned_bytes,
    }


def execution_device(model: Any) -> torch.device:
    """Where ``model`` (a module or a pipeline) computes, whatever its weights' devices say.

    Raises ``ValueError`` for a model without weights, which computes wherever its inputs are.
    """
    for name in ("_execution_device", "device"):
        device = getattr(model, name, None)
        if isinstance(device, torch.device):
            return device
    if isinstance(model, nn.Module):
        tensor = next(iter([*model.parameters(), *model.buffers()]), None)
        if tensor is not None:
            return tensor.device
    raise ValueError(f"{type(model).__name__} has no weights, so it has no device of its own.")
