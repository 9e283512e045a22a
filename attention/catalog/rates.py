"""How fast each family of attention kernels runs, read from published kernel charts; ratios hold within one chart only.

Charts: the SageAttention README ("sage", forward, non-causal; its own rows leave out quantising q, k and v) and
FlashAttention's assets/flash3_fp16_fwd.png ("flash", read off the chart). Rates are TFLOP/s at the longest sequence
charted and at 1024 tokens. A family is placed on a card by its ratio to FlashAttention-2 in the same chart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from paretune.attention.catalog.entry import Capability

__all__ = ["CHARTED", "Charted", "Share", "share"]

# Dense half-precision products with float32 accumulation, TFLOP/s, from NVIDIA's data sheets.
_PEAK_TFLOPS = {(8, 0): 312.0, (8, 6): 71.0, (8, 9): 165.2, (9, 0): 989.4, (12, 0): 209.5}
_REFERENCE = "fa2"
_SHORT = 1024


@dataclass(frozen=True)
class Charted:
    """One curve of a chart: TFLOP/s of a family at long sequences and 1024 tokens; ``rows`` are published row ids."""

    family: str
    compute_capability: Capability
    head_size: int
    chart: Literal["sage", "flash"]
    long_tflops: float
    short_tflops: float
    rows: str

    @property
    def half_sequence(self) -> float:
        """The length at which half of the long rate is reached, if rate = long x length / (length + half)."""
        return max(0.0, _SHORT * (self.long_tflops / self.short_tflops - 1.0))


CHARTED = (
    Charted("fa2", (8, 0), 128, "sage", 204, 160, "att-083..088"),
    Charted("fa2", (8, 6), 128, "sage", 70, 62, "att-191..196"),
    Charted("fa2", (8, 9), 128, "sage", 164, 145, "att-104..109"),
    Charted("fa2", (8, 9), 64, "sage", 167, 143, "att-137..142"),
    Charted("fa2", (9, 0), 128, "sage", 339, 319, "att-007..012"),
    Charted("fa2", (9, 0), 64, "sage", 303, 268, "att-043..048"),
    Charted("fa2", (9, 0), 64, "flash", 324, 306, "att-232..237"),
    Charted("fa2", (9, 0), 128, "flash", 370, 350, "att-261..266"),
    Charted("fa2", (9, 0), 256, "flash", 326, 313, "att-284..289"),
    Charted("fa2", (12, 0), 128, "sage", 214, 173, "att-203..208"),
    Charted("efficient", (8, 0), 128, "sage", 111, 85, "att-077..082"),
    Charted("efficient", (8, 6), 128, "sage", 46, 43, "att-185..190"),
    Charted("efficient", (8, 9), 128, "sage", 106, 93, "att-098..103"),
    Charted("efficient", (8, 9), 64, "sage", 125, 116, "att-131..136"),
    Charted("efficient", (9, 0), 128, "sage", 180, 166, "att-001..006"),
    Charted("efficient", (9, 0), 64, "sage", 141, 124, "att-037..042"),
    Charted("math", (8, 0), 128, "sage", 69, 61, "att-073..076"),
    Charted("math", (8, 6), 128, "sage", 31, 31, "att-182..184"),
    Charted("math", (8, 9), 128, "sage", 55, 46, "att-095..097"),
    Charted("math", (8, 9), 64, "sage", 28, 26, "att-128..130"),
    Charted("math", (9, 0), 64, "flash", 73, 63, "att-227..231"),
    Charted("math", (9, 0), 128, "flash", 139, 100, "att-256..260"),
    Charted("fa3", (9, 0), 64, "flash", 497, 392, "att-250..255"),
    Charted("fa3", (9, 0), 128, "flash", 648, 565, "att-278..283"),
    Charted("fa3", (9, 0), 256, "flash", 756, 622, "att-296..300"),
    Charted("cudnn", (9, 0), 64, "flash", 413, 373, "att-244..249"),
    Charted("cudnn", (9, 0), 128, "flash", 600, 574, "att-273..277"),
    Charted("cudnn", (9, 0), 256, "flash", 581, 546, "att-290..295"),
    Charted("triton", (9, 0), 64, "flash", 403, 382, "att-238..243"),
    Charted("triton", (9, 0), 128, "flash", 395, 372, "att-267..272"),
    Charted("sage_int8_fp16", (8, 0), 128, "sage", 278, 193, "att-089..094"),
    Charted("sage_int8_fp16", (8, 6), 128, "sage", 134, 126, "att-197..202"),
    Charted("sage_int8_fp16", (8, 9), 128, "sage", 322, 259, "att-110..115"),
    Charted("sage_int8_fp16", (8, 9), 64, "sage", 323, 273, "att-143..148"),
    Charted("sage_int8_fp16", (9, 0), 128, "sage", 518, 430, "att-013..018"),
    Charted("sage_int8_fp16", (9, 0), 64, "sage", 383, 311, "att-049..054"),
    Charted("sage_int8_fp16", (12, 0), 128, "sage", 479, 442, "att-209..214"),
    Charted("sage_int8_fp8", (8, 9), 128, "sage", 493, 411, "att-122..127"),
    Charted("sage_int8_fp8", (8, 9), 64, "sage", 387, 339, "att-149..154"),
    Charted("sage_int8_fp8", (9, 0), 128, "sage", 882, 676, "att-031..036"),
    Charted("sage_int8_fp8", (9, 0), 64, "sage", 606, 457, "att-067..072"),
    Charted("sage_int8_fp8", (12, 0), 128, "sage", 643, 583, "att-221..226"),
)

# Families without a chart of their own, and the nearest one that has: a guess, labelled as inferred.
_STANDS_FOR = {"sdpa": "fa2", "fa4": "fa3", "sage_fp4": "sage_int8_fp8"}


@dataclass(frozen=True, kw_only=True)
class Share:
    """Achieved rate over the card's dense half-precision rate (float32 accumulation), and where the figure comes from.

    evidence: "published" when this card's generation was charted, otherwise "inferred" from another one.
    """

    value: float
    evidence: Literal["published", "inferred"]
    source: str


def share(family: str, *, compute_capability: Capability, head_size: int, sequence: int) -> Share:
    """The share of the card's dense rate that a family of kernels reaches, for half-precision inputs.

    ``sequence`` is the number of keys. Raises ``ValueError`` for a family that no chart and no stand-in describes.
    """
    if family == "sage":
        family = "sage_int8_fp8" if compute_capability >= (8, 9) else "sage_int8_fp16"
    known = _STANDS_FOR.get(family, family)
    if not any(curve.family == known for curve in CHARTED):
        raise ValueError(f"no chart describes attention family {family!r}.")
    curve, base, anchor = _curves(known, compute_capability, head_size)
    relative = curve.long_tflops / base.long_tflops
    if curve.compute_capability[0] != compute_capability[0] and not known.startswith("sage"):
        # A generation's own instructions do not carry over, and half precision cannot pass the card's rate.
        relative = min(relative, 1.0)
    value = relative * anchor.long_tflops / _PEAK_TFLOPS[anchor.compute_capability]
    charted = known == family and curve.compute_capability == compute_capability
    return Share(
        value=value * sequence / (sequence + curve.half_sequence),
        evidence="published" if charted else "inferred",
        source=f"{curve.rows} relative to {base.rows}",
    )


@cache
def _curves(family: str, where: Capability, head_size: int) -> tuple[Charted, Charted, Charted]:
    """The family's nearest curve, FlashAttention-2 in that same chart, and FlashAttention-2 nearest to this card."""
    curve = min((c for c in CHARTED if c.family == family), key=lambda c: _distance(c, where, head_size))
    same_chart = [c for c in CHARTED if c.family == _REFERENCE and c.chart == curve.chart]
    base = min(same_chart, key=lambda c: _distance(c, curve.compute_capability, curve.head_size))
    references = [c for c in CHARTED if c.family == _REFERENCE]
    # Both charts show an H100 with different clocks; the one with all its neighbours decides.
    anchor = min(references, key=lambda c: (*_distance(c, where, head_size), c.chart != "flash"))
    return curve, base, anchor


def _distance(curve: Charted, where: Capability, head_size: int) -> tuple[int, int, int]:
    near = curve.compute_capability
    return abs(near[0] - where[0]), abs(near[1] - where[1]), abs(curve.head_size - head_size)
