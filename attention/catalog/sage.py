"""SageAttention: int8 query-key products, installed or from the Hub; fast and lossy."""

from __future__ import annotations

from dataclasses import replace

from paretune.attention.catalog.entry import Cost, Entry, HeadSizes, HubKernel, Limits, Package
from paretune.attention.catalog.flash import KERNELS

__all__ = ["ENTRIES"]

_ADAPTER = "paretune.attention.kernels.sage"
_PACKAGE = Package(
    distribution="sageattention",
    module="sageattention",
    minimum="2.1.1",
    install="build SageAttention 2 from github.com/thu-ml/SageAttention (PyPI has only 1.x), or use sage_hub",
)
_SM8 = (((8, 0), (8, 0)), ((8, 6), (8, 6)), ((8, 9), (8, 9)), ((9, 0), (9, 0)))
_SM12 = (((12, 0), (12, 1)),)

# 10.0 is missing on purpose: the library raises there.
_LIMITS = Limits(
    dtypes=("float16", "bfloat16"),
    head_sizes=HeadSizes(maximum=128),
    lse=True,
    gradients=False,
    capabilities=_SM8 + _SM12,
)
# int8 copies of q and k (half a byte per byte of each), an fp8 or fp16 copy of v, and their scales.
_COST = Cost(family="sage_int8_fp16", copies_qkv=0.5)
_COST_FP8 = Cost(family="sage_int8_fp8", copies_qkv=0.55)

_SAGE = Entry(
    name="sage",
    library="SageAttention",
    summary="int8 query-key product; the library picks the variant for the card",
    adapter=f"{_ADAPTER}:sage",
    function="sageattention:sageattn",
    layout="B,S,H,D",
    devices=("cuda",),
    limits=_LIMITS,
    exactness="lossy",
    cost=Cost(family="sage", copies_qkv=0.55),
    packages=(_PACKAGE,),
)


def _variant(suffix: str, summary: str, limits: Limits, cost: Cost) -> Entry:
    return replace(
        _SAGE,
        name=f"_sage_{suffix}",
        summary=summary,
        adapter=f"{_ADAPTER}:variant",
        function=f"sageattention:sageattn_{suffix}",
        limits=limits,
        cost=cost,
    )


ENTRIES = (
    _SAGE,
    replace(
        _SAGE,
        name="sage_hub",
        summary="SageAttention from the Hub",
        function="SageAttention/sage-attention:sageattn",
        limits=replace(
            _LIMITS, capabilities=(((8, 0), (8, 0)), ((8, 9), (8, 9)), ((9, 0), (9, 0)), ((12, 0), (12, 0)))
        ),
        packages=(KERNELS,),
        hub=HubKernel(repo="SageAttention/sage-attention", version=3),
    ),
    replace(
        _SAGE,
        name="sage_varlen",
        summary="SageAttention on packed sequences; k is smoothed over the batch, so samples influence each other",
        adapter=f"{_ADAPTER}:varlen",
        function="sageattention:sageattn_varlen",
        layout="packed",
        limits=replace(_LIMITS, mask="padding", lse=False, capabilities=_SM8),
        cost=_COST,
    ),
    replace(
        _SAGE,
        name="sage_blackwell_hub",
        summary="SageAttention 3: fp4 for RTX Blackwell, from the Hub",
        adapter=f"{_ADAPTER}:blackwell",
        function="SageAttention/sage-blackwell:sageattn3_blackwell",
        layout="B,H,S,D",
        limits=replace(
            _LIMITS,
            head_sizes=HeadSizes(only=(64, 128)),
            gqa=False,
            lse=False,
            any_scale=False,
            capabilities=(((12, 0), (12, 0)),),
        ),
        cost=Cost(family="sage_fp4", copies_qkv=0.85),
        packages=(KERNELS,),
        hub=HubKernel(repo="SageAttention/sage-blackwell", version=1),
        note="edits k in place, so it gets a copy",
    ),
    _variant(
        "qk_int8_pv_fp8_cuda",
        "int8 query-key and fp8 probability-value products",
        replace(_LIMITS, capabilities=(((8, 9), (8, 9)), ((9, 0), (9, 0)), *_SM12)),
        _COST_FP8,
    ),
    _variant(
        "qk_int8_pv_fp8_cuda_sm90",
        "the same for Hopper",
        replace(_LIMITS, capabilities=(((9, 0), (9, 0)),)),
        _COST_FP8,
    ),
    _variant("qk_int8_pv_fp16_cuda", "int8 query-key and fp16 probability-value products", _LIMITS, _COST),
    _variant(
        "qk_int8_pv_fp16_triton",
        "the same in Triton; not usable on 12.0",
        replace(_LIMITS, capabilities=_SM8),
        _COST,
    ),
)
