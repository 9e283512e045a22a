"""What a figure depends on besides the plan: machine, library versions and settings, read without touching a device."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["SETTINGS", "describe", "host_memory_limit_bytes", "versions"]

_PACKAGES = ("torch", "diffusers", "transformers", "accelerate", "kernels", "torchao", "bitsandbytes", "xformers")
_PACKAGES_ATTENTION = ("flash-attn", "sageattention", "triton", "paretune")

SETTINGS = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TORCHINDUCTOR_CACHE_DIR",
    "DIFFUSERS_ATTN_BACKEND",
)
"""Environment variables that change speed, memory or output; their values are kept, nothing else of the environment is."""


@functools.cache
def versions() -> Mapping[str, str]:
    """Versions of the libraries that decide a result; absent ones are left out."""
    found = {}
    for name in (*_PACKAGES, *_PACKAGES_ATTENTION):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def describe() -> dict[str, Any]:
    """The machine and its software as JSON values; holds no user, host name or path."""
    return {
        "versions": dict(versions()),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "num_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "host_memory_bytes": host_memory_limit_bytes(),
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
    }


@functools.cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def host_memory_limit_bytes(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Host memory this process may use: the machine's, or its container's where that is smaller."""
    import psutil

    total = int(psutil.virtual_memory().total)
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (cgroup / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total
