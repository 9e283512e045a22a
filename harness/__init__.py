"""The engine of paretune: from a question (what to run, where, in how much memory) to measured records and an answer."""

from __future__ import annotations

from typing import Any

__all__ = ["Kind", "Outcome", "Record", "Trial", "fit"]

_HOME = {
    "Kind": "paretune.harness.records",
    "Outcome": "paretune.harness.records",
    "Record": "paretune.harness.records",
    "Trial": "paretune.harness.records",
    "fit": "paretune.harness.fitting",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that importing the package costs nothing."""
    import importlib

    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
