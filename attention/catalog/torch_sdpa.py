"""PyTorch's own attention: scaled_dot_product_attention, each of its kernels, and FlexAttention."""

from __future__ import annotations

from dataclasses import replace

from paretune.attention.catalog.entry import Cost, Entry, HeadSizes, Limits, Package

__all__ = ["ENTRIES"]

_SDPA = "torch.nn.functional:scaled_dot_product_attention"
_ADAPTER = "paretune.attention.kernels.sdpa"
_FLOATS = ("float32", "float64", "bfloat16", "float16")
_HALF = ("float16", "bfloat16")
_SM80_TO_121 = (((8, 0), (12, 1)),)

_ANYTHING = Limits(
    dtypes=_FLOATS, head_sizes=HeadSizes(value_may_differ=True), mask="dense", causal="top_left", lse=True
)

# Limits as in PyTorch 2.13's sdp_utils.cpp: each kernel's own checks.
_FLASH_CUDA = Limits(
    dtypes=_HALF,
    head_sizes=HeadSizes(maximum=256),
    causal="square",
    lse=True,
    capabilities=_SM80_TO_121,
)
_EFFICIENT = Limits(
    dtypes=("float16", "bfloat16", "float32"),
    head_sizes=HeadSizes(multiple=8, multiple_float32=4, value_may_differ=True),
    mask="dense",
    causal="top_left",
    lse=True,
    capabilities=(((5, 0), (12, 1)),),
)
_CUDNN = Limits(
    dtypes=_HALF,
    head_sizes=HeadSizes(maximum=128, multiple=8),
    mask="dense",
    causal="top_left",
    minimum_keys=2,
    capabilities=_SM80_TO_121,
)

ENTRIES = (
    Entry(
        name="native",
        library="PyTorch",
        summary="scaled_dot_product_attention; PyTorch chooses the kernel",
        adapter=f"{_ADAPTER}:native",
        function=_SDPA,
        layout="B,H,S,D",
        devices=("any",),
        limits=_ANYTHING,
        exactness="bit_equal",
        cost=Cost(family="sdpa"),
        compiles=True,
    ),
    Entry(
        name="_native_math",
        library="PyTorch",
        summary="plain products and softmax; keeps the scores, so memory grows with queries x keys",
        adapter=f"{_ADAPTER}:math",
        function=_SDPA,
        layout="B,H,S,D",
        devices=("any",),
        limits=_ANYTHING,
        exactness="rounding",
        cost=Cost(family="math", keeps_lse=False, score_copies=2.0),
        compiles=True,
    ),
    Entry(
        name="_native_flash",
        library="PyTorch",
        summary="PyTorch's build of FlashAttention-2; a tiled kernel on CPU too",
        adapter=f"{_ADAPTER}:flash",
        function=_SDPA,
        layout="B,H,S,D",
        devices=("cuda", "rocm", "cpu"),
        limits=_FLASH_CUDA,
        limits_on=(("cpu", replace(_ANYTHING, head_sizes=HeadSizes())),),
        exactness="rounding",
        cost=Cost(family="fa2"),
        compiles=True,
    ),
    Entry(
        name="_native_efficient",
        library="PyTorch",
        summary="PyTorch's build of the memory-efficient (cutlass) kernel",
        adapter=f"{_ADAPTER}:efficient",
        function=_SDPA,
        layout="B,H,S,D",
        devices=("cuda", "rocm"),
        limits=_EFFICIENT,
        exactness="rounding",
        cost=Cost(family="efficient"),
    ),
    Entry(
        name="_native_cudnn",
        library="PyTorch",
        summary="cuDNN's fused attention through PyTorch; needs cuDNN 9",
        adapter=f"{_ADAPTER}:cudnn",
        function=_SDPA,
        layout="B,H,S,D",
        devices=("cuda",),
        limits=_CUDNN,
        exactness="rounding",
        cost=Cost(family="cudnn"),
        compiles=True,
    ),
    Entry(
        name="flex",
        library="PyTorch",
        summary="FlexAttention: a kernel generated for the mask; compiled on GPUs, unfused when eager on CPU",
        adapter="paretune.attention.kernels.flex:flex",
        function="torch.nn.attention.flex_attention:flex_attention",
        layout="B,H,S,D",
        devices=("cuda", "rocm", "cpu", "xpu"),
        limits=Limits(
            dtypes=("float32", "bfloat16", "float16"),
            head_sizes=HeadSizes(minimum=16),
            mask="dense",
            causal="top_left",
            lse=True,
            capabilities=(((7, 5), (12, 1)),),
        ),
        limits_on=(("cpu", replace(_ANYTHING, head_sizes=HeadSizes(), gradients=False)),),
        exactness="rounding",
        cost=Cost(family="triton"),
        compiles=True,
    ),
    Entry(
        name="_native_npu",
        library="torch_npu",
        summary="Ascend's fused attention",
        adapter="paretune.attention.kernels.accelerators:npu",
        function="torch_npu:npu_fusion_attention",
        layout="B,S,H,D",
        devices=("npu",),
        limits=Limits(dtypes=_HALF, mask="boolean", causal="top_left", gqa=False),
        exactness="rounding",
        cost=Cost(family="fa2"),
        packages=(Package(distribution="torch_npu", module="torch_npu", install="pip install torch_npu"),),
    ),
    Entry(
        name="_native_xla",
        library="torch_xla",
        summary="the TPU flash attention kernel of torch_xla",
        adapter="paretune.attention.kernels.accelerators:xla",
        function="torch_xla.experimental.custom_kernel:flash_attention",
        layout="B,H,S,D",
        devices=("xla",),
        limits=Limits(dtypes=("float32", "bfloat16"), causal="square", gqa=False),
        exactness="rounding",
        cost=Cost(family="fa2"),
        packages=(
            Package(
                distribution="torch_xla", module="torch_xla", minimum="2.2", install="pip install 'torch_xla[tpu]'"
            ),
            Package(distribution="jax", module="jax", install="pip install 'jax[tpu]'"),
        ),
    ),
)
