"""Where a plan runs and how that is measured: CUDA and other accelerators, the CPU, simulated GPUs."""

from paretune.harness.devices.base import Device, Session
from paretune.harness.devices.names import device_named

__all__ = ["Device", "Session", "device_named"]
