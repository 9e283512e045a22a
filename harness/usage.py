"""What a user can mend: a wrong name, a wrong value, a missing file. The command line prints it and exits with 2."""

from __future__ import annotations

__all__ = ["UsageError"]


class UsageError(ValueError):
    """Says what is wrong, why, and what to do; names the key path or argument."""
