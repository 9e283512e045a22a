"""Follow which module is running, so that peaks, errors and activations have an address."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from paretune.harness.simulator.machine import Machine

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Global forward hooks that keep the machine's current module and component up to date."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._outer: list[tuple[Any, str]] = []
        self._handles: list[Any] = []

    def __enter__(self) -> ModuleTracker:
        self._handles = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        ]
        return self

    def __exit__(self, *_: Any) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _enter_module(self, module: torch.nn.Module, args: Any) -> None:
        machine = self._machine
        self._outer.append((machine.module, machine.component))
        machine.module = module
        component = machine.component_of(module)
        if component is not None:
            machine.component = component
        machine.host_s += machine.host.module_call_s + machine.host.hook_s * _num_hooks(module)

    def _leave_module(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if self._outer:
            self._machine.module, self._machine.component = self._outer.pop()


def _num_hooks(module: torch.nn.Module) -> int:
    """Python functions that run around this module's forward, PyTorch's own and those of diffusers and accelerate."""
    count = len(module._forward_pre_hooks) + len(module._forward_hooks)
    attributes = module.__dict__
    if "_diffusers_hook" in attributes:
        count += 2 * len(attributes["_diffusers_hook"].hooks)
    if "_hf_hook" in attributes:
        count += 2
    return count
