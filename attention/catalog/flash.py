"""FlashAttention 2, 3 and 4, installed or from the Hub, dense and packed; its ROCm build; and xFormers."""

from __future__ import annotations

from dataclasses import replace

from paretune.attention.catalog.entry import Cost, Entry, HeadSizes, HubKernel, Limits, Package

__all__ = ["ENTRIES", "KERNELS"]

_ADAPTER = "paretune.attention.kernels.flash"
_HALF = ("float16", "bfloat16")

KERNELS = Package(distribution="kernels", module="kernels", minimum="0.12", install="pip install 'kernels>=0.12'")
_FA2 = Package(
    distribution="flash-attn",
    module="flash_attn",
    minimum="2.6.3",
    install="pip install flash-attn --no-build-isolation",
)
_FA3 = Package(
    distribution="flash_attn_3",
    module="flash_attn_interface",
    install="build the hopper folder of Dao-AILab/flash-attention, or use _flash_3_hub",
)
_XFORMERS = Package(distribution="xformers", module="xformers", minimum="0.0.29", install="pip install xformers")
_FA4_NEEDS = (
    Package(distribution="einops", module="einops", install="pip install einops"),
    Package(distribution="apache-tvm-ffi", module="tvm_ffi", install="pip install apache-tvm-ffi"),
    Package(distribution="nvidia-cutlass-dsl", module="cutlass", install="pip install nvidia-cutlass-dsl"),
)

# The published wheels and the Hub build carry 8.0 (covers 8.x), 9.0, 10.0 and 12.0.
_FA2_LIMITS = Limits(
    dtypes=_HALF,
    head_sizes=HeadSizes(maximum=256),
    lse=True,
    capabilities=(((8, 0), (8, 9)), ((9, 0), (9, 0)), ((10, 0), (10, 3)), ((12, 0), (12, 1))),
)
_FA3_LIMITS = Limits(
    dtypes=_HALF,
    head_sizes=HeadSizes(maximum=256, multiple=8),
    lse=True,
    capabilities=(((8, 0), (8, 9)), ((9, 0), (9, 0))),
)
_FA4_LIMITS = Limits(
    dtypes=_HALF,
    head_sizes=HeadSizes(maximum=128, maximum_by_major=((9, 256),), minimum=8, multiple=8),
    lse=True,
    capabilities=(((8, 0), (12, 1)),),
)
_FA2_HUB = HubKernel(repo="kernels-community/flash-attn2", version=3)
_FA3_HUB = HubKernel(repo="kernels-community/flash-attn3", version=1)

_FLASH = Entry(
    name="flash",
    library="FlashAttention-2",
    summary="FlashAttention-2 as installed",
    adapter=f"{_ADAPTER}:flash2",
    function="flash_attn:flash_attn_func",
    layout="B,S,H,D",
    devices=("cuda",),
    limits=_FA2_LIMITS,
    exactness="rounding",
    cost=Cost(family="fa2"),
    packages=(_FA2,),
)
_VARLEN = replace(
    _FLASH,
    name="flash_varlen",
    summary="FlashAttention-2 on packed sequences: padding is not computed",
    adapter=f"{_ADAPTER}:flash2_varlen",
    function="flash_attn:flash_attn_varlen_func",
    layout="packed",
    limits=replace(_FA2_LIMITS, mask="padding"),
)
_FLASH3 = replace(
    _FLASH,
    name="_flash_3",
    library="FlashAttention-3",
    summary="FlashAttention-3 built from source",
    adapter=f"{_ADAPTER}:flash3",
    function="flash_attn_interface:flash_attn_func",
    limits=_FA3_LIMITS,
    cost=Cost(family="fa3"),
    packages=(_FA3,),
)
_VARLEN3 = replace(
    _FLASH3,
    name="_flash_varlen_3",
    summary="FlashAttention-3 on packed sequences",
    adapter=f"{_ADAPTER}:flash3_varlen",
    function="flash_attn_interface:flash_attn_varlen_func",
    layout="packed",
    limits=replace(_FA3_LIMITS, mask="padding"),
)


def _from_hub(entry: Entry, name: str, hub: HubKernel, function: str) -> Entry:
    return replace(
        entry,
        name=name,
        hub=hub,
        function=f"{hub.repo}:{function}",
        packages=(KERNELS, *hub.needs),
        summary=f"{entry.library} from the Hub" + (", on packed sequences" if entry.layout == "packed" else ""),
    )


ENTRIES = (
    _FLASH,
    _from_hub(_FLASH, "flash_hub", _FA2_HUB, "flash_attn_func"),
    _VARLEN,
    _from_hub(_VARLEN, "flash_varlen_hub", _FA2_HUB, "flash_attn_varlen_func"),
    _FLASH3,
    _VARLEN3,
    _from_hub(_FLASH3, "_flash_3_hub", _FA3_HUB, "flash_attn_func"),
    _from_hub(_VARLEN3, "_flash_3_varlen_hub", _FA3_HUB, "flash_attn_varlen_func"),
    replace(
        _FLASH,
        name="flash_4_hub",
        library="FlashAttention-4",
        summary="FlashAttention-4 (CuTe DSL) from the Hub",
        adapter=f"{_ADAPTER}:flash4",
        function="kernels-community/flash-attn4:flash_attn_func",
        limits=_FA4_LIMITS,
        cost=Cost(family="fa4"),
        packages=(replace(KERNELS, minimum="0.12.3", install="pip install 'kernels>=0.12.3'"), *_FA4_NEEDS),
        hub=HubKernel(repo="kernels-community/flash-attn4", version=0, needs=_FA4_NEEDS),
        note="needs CUDA 12.8",
    ),
    replace(
        _FLASH,
        name="aiter_fa2_hub",
        library="AITER",
        summary="FlashAttention-2 for AMD Instinct (gfx942, gfx950) from the Hub",
        adapter=f"{_ADAPTER}:aiter",
        function="kernels-community/aiter-flash-attn-ck:flash_attn_func",
        devices=("rocm",),
        limits=Limits(dtypes=("bfloat16",), head_sizes=HeadSizes(only=(64, 128)), lse=True, gradients=False),
        packages=(KERNELS,),
        hub=HubKernel(repo="kernels-community/aiter-flash-attn-ck", version=1),
    ),
    Entry(
        name="xformers",
        library="xFormers",
        summary="memory_efficient_attention: FlashAttention-2 without a mask, cutlass with one",
        adapter="paretune.attention.kernels.xformers:xformers",
        function="xformers.ops:memory_efficient_attention",
        layout="B,S,H,D",
        devices=("cuda",),
        limits=Limits(
            dtypes=("float16", "bfloat16", "float32"),
            head_sizes=HeadSizes(maximum=256, multiple=8, multiple_float32=4),
            mask="dense",
            causal="square",
            gqa=False,
            capabilities=(((5, 0), (12, 1)),),
            mask_capabilities=(((5, 0), (9, 0)),),
        ),
        exactness="rounding",
        cost=Cost(family="fa2", masked_family="efficient"),
        packages=(_XFORMERS,),
    ),
)
