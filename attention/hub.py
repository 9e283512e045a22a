"""Kernels from the Hugging Face Hub: pinned version, trust first, one load per process, one download at a time."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from pathlib import Path
from types import ModuleType

from paretune.attention.catalog import HubKernel
from paretune.attention.errors import BackendUnavailable
from paretune.attention.trust import distrust

__all__ = ["DOWNLOAD_TIMEOUT_S", "load_kernel"]

DOWNLOAD_TIMEOUT_S = 900.0
"""How long to wait for another process that is downloading the same kernel."""

_loaded: dict[HubKernel, ModuleType] = {}
_loading = threading.Lock()


def load_kernel(hub: HubKernel) -> ModuleType:
    """The module of a kernel repository at its pinned version; loaded once per process, from the cache when offline.

    Raises ``BackendUnavailable`` when its publisher is not trusted, the ``kernels`` package is missing, or the kernel
    is neither in the cache nor reachable.
    """
    if reason := distrust(hub):
        raise BackendUnavailable(reason)
    with _loading:
        if hub not in _loaded:
            _loaded[hub] = _fetch(hub)
        return _loaded[hub]


def _fetch(hub: HubKernel) -> ModuleType:
    try:
        import kernels
        from filelock import FileLock, Timeout
    except ImportError as error:
        raise BackendUnavailable(
            f"package 'kernels' is not installed ({error}). Install: pip install kernels"
        ) from error
    try:
        with FileLock(_lock_path(hub), timeout=DOWNLOAD_TIMEOUT_S):
            # Trust was decided above by our own list; kernels would ask the Hub again, which fails offline.
            module: ModuleType = kernels.get_kernel(hub.repo, version=hub.version, trust_remote_code=[hub.repo])
    except Timeout as error:
        raise BackendUnavailable(
            f"{hub.repo}: another process has been downloading it for {DOWNLOAD_TIMEOUT_S:.0f} s."
        ) from error
    except Exception as error:
        # kernels, huggingface_hub and the kernel's own import raise their own types; all mean it cannot be used.
        offline = " (offline: only cached kernels can be loaded)" if os.environ.get("HF_HUB_OFFLINE") else ""
        raise BackendUnavailable(
            f"{hub.repo} v{hub.version} cannot be loaded{offline}: {type(error).__name__}: {error}"
        ) from error
    return module


def _lock_path(hub: HubKernel) -> Path:
    """One lock file per user, kernel and version, outside the cache, which may be read-only."""
    name = hashlib.sha256(f"{hub.repo}@{hub.version}".encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"paretune-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{name}.lock"
