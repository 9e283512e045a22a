"""Why a backend will not run: it cannot do what is asked, or it is not here."""

from __future__ import annotations

__all__ = ["BackendRefused", "BackendUnavailable"]


class BackendRefused(ValueError):
    """The backend cannot compute this call as asked; raised before anything runs, never after a silent change."""


class BackendUnavailable(RuntimeError):
    """The backend cannot run on this device or installation; the text says why and what to install."""
