"""Whose code may be downloaded and run: known publishers always, others on request, and an off switch that wins."""

from __future__ import annotations

import os
from collections.abc import Mapping

from paretune.attention.catalog import HubKernel

__all__ = ["TRUSTED_PUBLISHERS", "distrust", "is_opted_in"]

TRUSTED_PUBLISHERS = frozenset({"kernels-community"})
_YES = frozenset({"1", "on", "yes", "true"})
_TRUST = ("PARETUNE_TRUST_REMOTE_KERNELS", "DIFFUSERS_TRUST_REMOTE_KERNELS")
_DISABLE = ("PARETUNE_DISABLE_REMOTE_CODE", "DIFFUSERS_DISABLE_REMOTE_CODE")


def distrust(hub: HubKernel, environment: Mapping[str, str] | None = None) -> str | None:
    """Why code of this repository may not run, as a sentence; None when it may. Read at every call, never cached."""
    variables = os.environ if environment is None else environment
    if off := _first_set(_DISABLE, variables):
        return f"{off} forbids remote code, and {hub.repo} is remote. Unset it, or choose an installed backend."
    if hub.publisher in TRUSTED_PUBLISHERS or _first_set(_TRUST, variables):
        return None
    return (
        f"{hub.publisher} is not a trusted publisher of kernels. "
        f"Read {hub.repo}, then set {_TRUST[0]}=true to run its code."
    )


def is_opted_in(environment: Mapping[str, str] | None = None) -> bool:
    """Whether publishers that are not on the list may run code."""
    variables = os.environ if environment is None else environment
    return not _first_set(_DISABLE, variables) and _first_set(_TRUST, variables) is not None


def _first_set(names: tuple[str, ...], variables: Mapping[str, str]) -> str | None:
    return next((name for name in names if variables.get(name, "").strip().lower() in _YES), None)
