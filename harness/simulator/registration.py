"""Registers the device type `sim` with PyTorch, once a process, and knows which simulated machine is active."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

if TYPE_CHECKING:
    from paretune.harness.simulator.machine import Machine

__all__ = ["activate", "active_machine", "active_machine_or_none", "register"]

_machines: list[Machine] = []
_registered: list[Any] = []


def register() -> None:
    """Make `torch.device("sim")` and `torch.get_device_module("sim")` exist; later calls do nothing."""
    if _registered:
        return
    from paretune.harness.simulator import device_module

    _setup_privateuseone_for_python_backend("sim", backend_module=device_module)
    _registered.append(device_module)


def activate(machine: Machine | None) -> None:
    """Push a machine as the active one, or pop the newest with `None`."""
    if machine is None:
        _machines.pop()
    else:
        _machines.append(machine)


def active_machine() -> Machine:
    """The machine of the innermost running simulation; raises `RuntimeError` outside of one."""
    if not _machines:
        raise RuntimeError("no simulation is active: device type 'sim' exists only inside `with Simulation(...)`")
    return _machines[-1]


def active_machine_or_none() -> Machine | None:
    """The active machine, or `None` outside of a simulation."""
    return _machines[-1] if _machines else None
