"""Every attention backend as data; importing it needs no torch, and adding a backend is adding an entry."""

from __future__ import annotations

import difflib
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from paretune.attention.catalog import flash, sage, torch_sdpa
from paretune.attention.catalog.entry import Cost, Entry, HeadSizes, HubKernel, Limits, Package

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Cost", "Entry", "HeadSizes", "HubKernel", "Limits", "Package", "catalog", "entry"]


@cache
def catalog() -> Mapping[str, Entry]:
    """Every backend by name, in the order of the documentation's table."""
    entries = (*torch_sdpa.ENTRIES, *flash.ENTRIES, *sage.ENTRIES)
    return MappingProxyType({item.name: item for item in entries})


def entry(name: str) -> Entry:
    """The entry of one backend.

    Raises ``ValueError`` for an unknown name, with the nearest known one.
    """
    known = catalog()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ValueError(f"attention backend {name!r} is not known.{hint} Known: {', '.join(known)}.")
