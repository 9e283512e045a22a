"""Which published sources constants were fitted to, and which were only looked at afterwards."""

from __future__ import annotations

from paretune.harness.validation.rows import PublishedRow

__all__ = ["FIT_FAMILIES", "part_of"]

FIT_FAMILIES = ("od", "ci", "pr")
"""Fitted: the float32 convolution share and the rate of rented links to `od` and `ci`, fusion of compiled code to `ci`."""


def part_of(row: PublishedRow) -> str:
    """`fit` or `held-out`."""
    return "fit" if row.family in FIT_FAMILIES else "held-out"
