"""One attention call as plain numbers, and the one reason why a backend refuses it; needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from paretune.attention.catalog import Entry, HeadSizes
from paretune.attention.catalog.entry import Capability, Limits

__all__ = ["TAKES", "Call", "outside_capabilities", "refusal"]

_HALF = ("float16", "bfloat16")
TAKES = {
    "none": frozenset({"none"}),
    "padding": frozenset({"none", "padding"}),
    "boolean": frozenset({"none", "padding", "boolean"}),
    "dense": frozenset({"none", "padding", "boolean", "dense"}),
}
"""The kinds of mask that a limit allows."""

_WORDS = {
    "none": "no mask",
    "padding": "only boolean key padding, one mask of keys per sample; this differs by query or head or is additive",
    "boolean": "only boolean masks; this one is additive",
    "dense": "any mask",
}


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a kernel must be able to do. Sizes follow (B, S, H, D): batch, positions, heads, elements per head.

    mask: "none", "padding" (boolean, one key mask per sample), "boolean" or "dense" (additive). compute_capability:
    None where there is none.
    default_scale: the scale is head_size ** -0.5.
    """

    dtype: str
    batch: int
    queries: int
    keys: int
    heads: int
    key_heads: int
    head_size: int
    value_size: int
    mask: Literal["none", "padding", "boolean", "dense"] = "none"
    causal: bool = False
    enable_gqa: bool = False
    default_scale: bool = True
    return_lse: bool = False
    requires_grad: bool = False
    device_type: str = "cuda"
    compute_capability: Capability | None = None


def refusal(entry: Entry, call: Call) -> str | None:
    """The first reason why ``entry`` cannot compute ``call``, as a sentence; None when it can."""
    reason = next(_reasons(entry.limits_for(call.device_type), call), None)
    return None if reason is None else f"{entry.name}: {reason}"


def _reasons(limits: Limits, call: Call) -> Iterator[str]:
    yield from _capability(limits, call)
    if call.dtype not in limits.dtypes:
        yield f"takes {', '.join(limits.dtypes)}, not {call.dtype}. Convert the tensors or choose another backend."
    yield from _heads(limits.head_sizes, call)
    if 0 < call.keys < limits.minimum_keys:
        yield f"needs at least {limits.minimum_keys} keys, got {call.keys}."
    yield from _groups(call)
    yield from _masks(limits, call)
    if not call.default_scale and not limits.any_scale:
        yield "its scale is fixed to head size ** -0.5. Choose another backend."
    if call.return_lse and not limits.lse:
        yield "does not return the log-sum-exp. Choose a backend whose entry says lse."
    if call.requires_grad and not limits.gradients:
        yield "has no backward pass. Run it under torch.no_grad() or torch.inference_mode()."


def outside_capabilities(limits: Limits, where: Capability) -> str:
    """The sentence that says a device is too old or too new for a kernel; empty when it is neither."""
    if not limits.capabilities or _within(where, limits.capabilities):
        return ""
    return f"runs on compute capability {_ranges(limits.capabilities)}, this device has {_dotted(where)}."


def _capability(limits: Limits, call: Call) -> Iterator[str]:
    where = call.compute_capability
    if where is None:
        return
    if sentence := outside_capabilities(limits, where):
        yield sentence
    narrow = limits.mask_capabilities
    if narrow and (call.mask != "none" or call.dtype == "float32") and not _within(where, narrow):
        yield f"takes masks and float32 on compute capability {_ranges(narrow)} only, this device has {_dotted(where)}."


def _heads(sizes: HeadSizes, call: Call) -> Iterator[str]:
    size, largest = call.head_size, sizes.largest(call.compute_capability)
    if call.value_size != size and not sizes.value_may_differ:
        yield f"needs equal head sizes, got {size} for queries and {call.value_size} for values."
    for width in {size, call.value_size}:
        if sizes.only and width not in sizes.only:
            yield f"takes head sizes {', '.join(map(str, sizes.only))}, not {width}."
        if width < sizes.minimum or (largest is not None and width > largest):
            yield f"takes head sizes {sizes.minimum} to {largest or 'any'}, not {width}."
        multiple = sizes.multiple if call.dtype in _HALF else sizes.multiple_float32
        if width % multiple:
            yield f"takes head sizes that are multiples of {multiple} in {call.dtype}, not {width}."


def _groups(call: Call) -> Iterator[str]:
    if call.heads == call.key_heads:
        return
    if not call.enable_gqa:
        yield (
            f"{call.heads} query heads and {call.key_heads} key heads need enable_gqa=True; "
            "without it one key head would be shared silently."
        )
    elif call.key_heads == 0 or call.heads % call.key_heads:
        yield f"{call.heads} query heads cannot be shared by {call.key_heads} key heads: not a multiple."


def _masks(limits: Limits, call: Call) -> Iterator[str]:
    if call.mask not in TAKES[limits.mask]:
        yield f"takes {_WORDS[limits.mask]}. Choose a backend whose entry says {call.mask} masks."
    if not call.causal:
        return
    if limits.causal == "none":
        yield "has no causal mode."
    elif limits.causal == "square" and call.queries != call.keys:
        yield (
            f"aligns causal attention with the last key; with {call.queries} queries and {call.keys} keys that is not "
            "the first-key alignment used here. Choose a backend whose entry says causal top_left."
        )
    if call.mask == "padding" and limits.mask == "padding":
        yield "cannot combine causal attention with padding: packing moves the keys."


def _within(where: Capability, ranges: Iterable[tuple[Capability, Capability]]) -> bool:
    return any(low <= where <= high for low, high in ranges)


def _dotted(capability: Capability) -> str:
    return f"{capability[0]}.{capability[1]}"


def _ranges(ranges: Iterable[tuple[Capability, Capability]]) -> str:
    return ", ".join(_dotted(low) if low == high else f"{_dotted(low)}-{_dotted(high)}" for low, high in ranges)
