"""Find the device that a name such as ``cuda:1``, ``cpu``, ``sim:rtx-4070`` or ``auto`` means."""

from __future__ import annotations

import re

from paretune.harness.devices.base import Device
from paretune.harness.usage import UsageError

__all__ = ["AUTO_GPU", "DeviceError", "device_named", "resolve_auto"]

AUTO_GPU = "rtx-4070"
"""The card that ``auto`` simulates where there is none: 12 GiB, the size people ask about most."""


class DeviceError(UsageError):
    """A device name that cannot be read or a device that is not there."""


def device_named(spec: str) -> Device:
    """Build the device. Raises ``DeviceError`` that says which names there are."""
    family = re.split("[:,]", spec, maxsplit=1)[0]
    if family == "sim":
        from paretune.harness.devices.simulated import SimulatedDevice

        return SimulatedDevice(spec)
    if family == "cpu":
        from paretune.harness.devices.cpu import CpuDevice

        return CpuDevice(spec)
    if family == "auto":
        return device_named(resolve_auto()[0])
    from paretune.harness.devices.accelerator import AcceleratorDevice

    return AcceleratorDevice(spec)


def resolve_auto() -> tuple[str, str]:
    """The device ``auto`` means here and the sentence that says so."""
    import torch

    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator()
        return str(kind), f"auto: measuring on {kind}."
    return f"sim:{AUTO_GPU}", f"auto: no accelerator found, so a {AUTO_GPU} is simulated. Its figures are predictions."
