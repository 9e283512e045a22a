"""Every attention backend behind one contract, and models routed through any of them and back.

from paretune.attention import attend, availability, catalog, route

with route(pipeline.transformer, "flash") as routed:
    image = pipeline(prompt).images[0]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from paretune.attention.catalog import Entry, catalog, entry

if TYPE_CHECKING:
    from paretune.attention.available import Availability, availability
    from paretune.attention.choice import Choice, choose
    from paretune.attention.contract import attend, check
    from paretune.attention.errors import BackendRefused, BackendUnavailable
    from paretune.attention.install import Routed, route
    from paretune.attention.probing import Probe, probe

__all__ = [
    "Availability",
    "BackendRefused",
    "BackendUnavailable",
    "Choice",
    "Entry",
    "Probe",
    "Routed",
    "attend",
    "availability",
    "catalog",
    "check",
    "choose",
    "entry",
    "probe",
    "route",
]

_HOMES = {
    "Availability": "available",
    "availability": "available",
    "BackendRefused": "errors",
    "BackendUnavailable": "errors",
    "Choice": "choice",
    "choose": "choice",
    "Probe": "probing",
    "probe": "probing",
    "Routed": "install",
    "route": "install",
    "attend": "contract",
    "check": "contract",
}


def __getattr__(name: str) -> Any:
    """What needs torch is imported on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
