"""What is known about one attention backend before it runs: identity, requirements, limits, exactness and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Capability", "Cost", "Entry", "HeadSizes", "HubKernel", "Limits", "Package"]

Capability = tuple[int, int]
"""NVIDIA's compute capability, such as (9, 0)."""

Exactness = Literal["bit_equal", "rounding", "lossy"]
MaskKind = Literal["none", "padding", "boolean", "dense"]
CausalKind = Literal["none", "square", "top_left"]


@dataclass(frozen=True, kw_only=True)
class Package:
    """A Python distribution the backend imports; ``install`` is the command that brings it."""

    distribution: str
    module: str
    minimum: str | None = None
    install: str

    def __str__(self) -> str:
        return f"{self.distribution}>={self.minimum}" if self.minimum else self.distribution


@dataclass(frozen=True, kw_only=True)
class HubKernel:
    """A kernel repository on the Hugging Face Hub; ``version`` N names its branch ``vN``, pinned here."""

    repo: str
    version: int
    needs: tuple[Package, ...] = ()

    @property
    def publisher(self) -> str:
        """The organisation whose code would run."""
        return self.repo.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class HeadSizes:
    """Head sizes (elements per head) a kernel takes; ``only`` lists them when they are few."""

    maximum: int | None = None
    maximum_by_major: tuple[tuple[int, int], ...] = ()
    multiple: int = 1
    multiple_float32: int = 1
    only: tuple[int, ...] = ()
    minimum: int = 1
    value_may_differ: bool = False

    def largest(self, compute_capability: Capability | None) -> int | None:
        """The largest size on a device of this compute capability; None when there is no limit."""
        by_major = dict(self.maximum_by_major)
        if compute_capability is not None and compute_capability[0] in by_major:
            return by_major[compute_capability[0]]
        return self.maximum


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the kernel really takes; anything else is refused before the call.

    mask: "none", "padding" (boolean, one key mask per sample), "boolean" (of any shape) or "dense" (additive as well).
    causal: "none", "square" (as many queries as keys only) or "top_left" (query i sees keys 0..i, whatever the
    lengths).
    capabilities: inclusive ranges of compute capability; empty where the device has none.
    mask_capabilities: the ranges in which a mask (or float32) is possible, where they are narrower.
    """

    dtypes: tuple[str, ...]
    head_sizes: HeadSizes = HeadSizes()
    mask: MaskKind = "none"
    causal: CausalKind = "square"
    gqa: bool = True
    lse: bool = False
    any_scale: bool = True
    minimum_keys: int = 1
    gradients: bool = True
    capabilities: tuple[tuple[Capability, Capability], ...] = ()
    mask_capabilities: tuple[tuple[Capability, Capability], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a cost model needs; rates of a family against others stand in ``rates.py`` with their sources.

    family: key of the rate table. masked_family: the family that runs when a mask is given.
    keeps_lse: the kernel allocates a float32 log-sum-exp of batch x heads x queries.
    score_copies: how many batch x heads x queries x keys arrays are alive at once (the math path keeps two).
    copies_qkv: how many bytes of temporaries the kernel allocates per byte of q, k and v together (quantised copies).
    fixed_workspace_bytes: allocated per call whatever the size.
    """

    family: str
    masked_family: str | None = None
    keeps_lse: bool = True
    score_copies: float = 0.0
    copies_qkv: float = 0.0
    fixed_workspace_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One attention backend.

    name: diffusers' public name, so configurations carry over. library: who wrote the kernel.
    adapter: ``module:function`` of ours that calls it. function: ``module:function`` of the library, imported on first
    use.
    layout: how the kernel wants its tensors ("B,S,H,D", "B,H,S,D" or "packed"); callers always use (B, S, H, D).
    devices: torch device types; "any" for PyTorch's own. limits_on: limits for device types that differ from
    ``limits``.
    exactness: "bit_equal" to an untouched model, "rounding" (exact softmax, other rounding) or "lossy" (quantised).
    """

    name: str
    library: str
    summary: str
    adapter: str
    function: str
    layout: Literal["B,S,H,D", "B,H,S,D", "packed"]
    devices: tuple[str, ...]
    limits: Limits
    exactness: Exactness
    cost: Cost
    packages: tuple[Package, ...] = ()
    hub: HubKernel | None = None
    limits_on: tuple[tuple[str, Limits], ...] = ()
    compiles: bool = False
    note: str = ""

    @property
    def is_lossy(self) -> bool:
        """Whether the result differs by more than rounding."""
        return self.exactness == "lossy"

    def limits_for(self, device_type: str) -> Limits:
        """The limits on one torch device type; a simulated GPU has those of a CUDA device."""
        return dict(self.limits_on).get(device_type, self.limits)
