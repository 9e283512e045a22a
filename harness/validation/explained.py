"""Rows that differ for a known reason outside of the simulator: shown and counted, but no measure of its uncertainty."""

from __future__ import annotations

from paretune.harness.validation.rows import PublishedRow

__all__ = ["explanation"]

_CACHES = (
    "today's diffusers keeps the old and the new set of convolution caches while a chunk passes; the published run one"
)

_TRIED = (
    "11 activations of the first block where the code holds three: the rest is a workspace of four times a convolution's input "
    "and output on every card, as trial runs of cuDNN's algorithms (cudnn.benchmark) would take"
)
_SAMPLED = "memory was sampled every 50 ms, and two runs differ by a quarter: the decode's short peak was missed"


def explanation(row: PublishedRow) -> str:
    """Why today's libraries, or an instrument, must give another figure than the published one; empty for other rows.

    Releases of diffusers before 0.32 replaced the caches of CogVideoX's causal convolutions in place.
    """
    if not row.metric.startswith("peak"):
        return ""
    if row.model.startswith("CogVideoX"):
        return _CACHES
    if row.pipeline == "AutoencoderKL.encode" and "% x" in row.unit_note:
        return _TRIED
    is_sampled = "sampled" in row.unit_note and "brief peaks can be missed" in row.notes
    return _SAMPLED if is_sampled and row.config.get("offload") == "sequential" else ""
