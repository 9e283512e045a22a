"""What is computed: diffusers pipelines, plain modules, or whatever a user's function returns."""

from typing import TYPE_CHECKING

from paretune.harness.workloads.base import Observer, Workload, WorkloadError

if TYPE_CHECKING:
    from paretune.harness.workloads.catalog import workload_named, workload_names

__all__ = ["Observer", "Workload", "WorkloadError", "workload_named", "workload_names"]


def __getattr__(name: str) -> object:
    """``workload_named`` and ``workload_names`` are imported on first use."""
    if name in ("workload_named", "workload_names"):
        from paretune.harness.workloads import catalog

        return getattr(catalog, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
