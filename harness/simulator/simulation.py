"""Run a block of PyTorch code on simulated cards: `with Simulation(load_gpu("rtx-4090")): ...`."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from paretune.harness.simulator import attention, copies, mapped_files, memory_operators, snapshot, values
from paretune.harness.simulator.caches import SimulatedCaches
from paretune.harness.simulator.compiling import CompiledCode
from paretune.harness.simulator.disk import SimulatedDisk
from paretune.harness.simulator.dispatch import dispatch
from paretune.harness.simulator.kernels import ShallowCopies, register_kernels
from paretune.harness.simulator.machine import Machine
from paretune.harness.simulator.modules import ModuleTracker
from paretune.harness.simulator.registration import activate, register
from paretune.harness.simulator.replay import Replay
from paretune.harness.simulator.sharing import RefusedCapsules
from paretune.harness.simulator.sheets import GpuSheet, HostSheet, load_gpu, load_host

__all__ = ["Simulation"]

_OWNERS = (attention, copies, mapped_files, memory_operators, values)
"""Modules that fill the table of special operators when they are imported."""


class _Dispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Catches factories and ordinary tensors; simulated tensors catch the rest themselves."""


def _caught(self: _Dispatch, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return dispatch(func, args, kwargs or {})


_Dispatch.__torch_dispatch__ = _caught  # type: ignore[method-assign, assignment]
"""Set afterwards: written inside the class, PyTorch would wrap it to hide it from its compiler, at a cost on every call."""


class Simulation:
    """A simulated machine that is active inside a `with` block.

    While it is active, every tensor that is created lives in it: on the host or on `sim:0`, `sim:1`, ... Small ones keep
    their values, all others are shapes. `machine` has the ledgers and the clock, also after the block.
    """

    def __init__(
        self,
        gpu: GpuSheet | str = "rtx-4090",
        *,
        memory_bytes: int | None = None,
        num_devices: int = 1,
        host: HostSheet | str = "host-default",
        options: dict[str, Any] | None = None,
    ) -> None:
        register()
        register_kernels()
        sheet = load_gpu(gpu) if isinstance(gpu, str) else gpu
        host_sheet = load_host(host) if isinstance(host, str) else host
        memory = sheet.memory_bytes if memory_bytes is None else memory_bytes
        self.machine = Machine(sheet, host_sheet, memory_bytes=memory, num_devices=num_devices, options=options or {})
        snapshot.watch(self.machine)
        self.replay = Replay(self.machine)
        self._modes: list[Any] = []

    def __enter__(self) -> Simulation:
        activate(self.machine)
        self._modes = [
            ModuleTracker(self.machine),
            ShallowCopies(),
            CompiledCode(),
            SimulatedDisk(self.machine),
            SimulatedCaches(self.machine),
            RefusedCapsules(),
            self.replay,
            _Dispatch(),  # type: ignore[no-untyped-call]
        ]
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        while self._modes:
            self._modes.pop().__exit__(*error)
        activate(None)

    def label(self, component: str, module: torch.nn.Module) -> None:
        """Name a component, so that its weights and activations are counted under it."""
        self.machine.label_modules(component, module)
