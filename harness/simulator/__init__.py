"""The simulated GPU: a torch device type without data, an exact memory ledger and a modelled clock."""

from paretune.harness.simulator.sheets import GpuSheet, HostSheet, gpu_names, load_gpu, load_host

__all__ = ["GpuSheet", "HostSheet", "Simulation", "gpu_names", "load_gpu", "load_host"]


def __getattr__(name: str) -> object:
    """Import the parts that need torch only when they are asked for."""
    if name == "Simulation":
        from paretune.harness.simulator.simulation import Simulation

        return Simulation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
