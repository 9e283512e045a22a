"""From an entry to something that can be called: its library function, imported on first use, behind its adapter."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from paretune.attention.catalog import Entry
from paretune.attention.errors import BackendUnavailable

__all__ = ["Kernel", "kernel_on", "load"]

Kernel = Callable[..., Any]
"""Takes query, key, value and a Request, returns a Result (see request.py)."""


def load(entry: Entry) -> Kernel:
    """The adapter of ``entry`` bound to its library function.

    Raises ``BackendUnavailable`` with the import error when the library cannot be loaded.
    """
    module, _, name = entry.adapter.partition(":")
    return partial(getattr(importlib.import_module(module), name), _function(entry))


def kernel_on(entry: Entry, device_type: str) -> Kernel | None:
    """``load``, or None on a simulated device, which needs no library; PyTorch's own choice it intercepts itself."""
    return None if device_type == "sim" and entry.name != "native" else load(entry)


def _function(entry: Entry) -> Callable[..., Any]:
    module, _, name = entry.function.partition(":")
    try:
        if entry.hub is not None:
            from paretune.attention.hub import load_kernel

            return _attribute(load_kernel(entry.hub), name)
        return _attribute(importlib.import_module(module), name)
    except (ImportError, OSError, AttributeError) as error:
        raise BackendUnavailable(f"{entry.name}: {module} cannot be loaded ({error}).") from error


def _attribute(module: Any, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(module, name)
    return function
