"""Which published sources constants were fitted to, and which were only looked at afterwards."""

from __future__ import annotations

from paretune.harness.validation.rows import PublishedRow

__all__ = ["FIT_FAMILIES", "FIT_TIMES", "part_of"]

FIT_FAMILIES = ("od", "ci", "pr", "t2", "tao")
"""Fitted: the float32 convolution share and the rate of rented links to `od` and `ci`, fusion of compiled code to `ci`,
the share of their rates that H100, A100, V100 and T4 reach to `t2` and `tao`."""
FIT_TIMES = ("zimg",)
"""Only times were fitted: the rates of that machine's pageable copies."""


def part_of(row: PublishedRow) -> str:
    """`fit` or `held-out`."""
    is_fit = row.family in FIT_FAMILIES or (row.family in FIT_TIMES and row.metric == "latency_s")
    return "fit" if is_fit else "held-out"
