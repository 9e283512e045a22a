"""The catalogue as a table for people; the README of this package holds its output."""

from __future__ import annotations

from paretune.attention.catalog import catalog
from paretune.attention.catalog.entry import Entry, Limits

__all__ = ["markdown"]

_COLUMNS = ("backend", "kernel", "needs", "device", "types", "head size", "mask", "causal", "GQA", "LSE", "result")
_SHORT = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16"}
_MASKS = {"none": "-", "padding": "key padding", "boolean": "boolean", "dense": "boolean, additive"}
_CAUSAL = {"none": "-", "square": "S = K", "top_left": "any S, K"}
_RESULTS = {"bit_equal": "bit-equal", "rounding": "exact up to rounding", "lossy": "lossy"}


def markdown() -> str:
    """One row per backend, in Markdown, from the entries alone."""
    rows = [_COLUMNS, tuple("---" for _ in _COLUMNS), *map(_row, catalog().values())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(entry: Entry) -> tuple[str, ...]:
    limits = entry.limits
    return (
        f"`{entry.name}`",
        entry.summary,
        _needs(entry),
        _devices(entry),
        ", ".join(_SHORT[dtype] for dtype in limits.dtypes),
        _sizes(limits),
        _MASKS[limits.mask],
        _CAUSAL[limits.causal],
        "yes" if limits.gqa else "repeated",
        "yes" if limits.lse else "-",
        _RESULTS[entry.exactness],
    )


def _needs(entry: Entry) -> str:
    parts = [f"`{package}`" for package in entry.packages]
    if entry.hub is not None:
        parts.append(f"[{entry.hub.repo}](https://huggingface.co/{entry.hub.repo}) v{entry.hub.version}")
    return ", ".join([*parts, *([entry.note] if entry.note.startswith("needs") else [])]) or "-"


def _devices(entry: Entry) -> str:
    ranges = [_span(low, high) for low, high in entry.limits.capabilities]
    return ", ".join(entry.devices) + (f" ({', '.join(ranges)})" if ranges else "")


def _span(low: tuple[int, int], high: tuple[int, int]) -> str:
    first, last = (".".join(map(str, capability)) for capability in (low, high))
    return first if first == last else f"{first}-{last}"


def _sizes(limits: Limits) -> str:
    sizes = limits.head_sizes
    if sizes.only:
        return ", ".join(map(str, sizes.only))
    span = (
        f"{sizes.minimum} to {sizes.maximum}"
        if sizes.maximum
        else ("any" if sizes.minimum == 1 else f"from {sizes.minimum}")
    )
    for major, largest in sizes.maximum_by_major:
        span += f" ({largest} on {major}.x)"
    return span + (f", multiples of {sizes.multiple}" if sizes.multiple > 1 else "")
