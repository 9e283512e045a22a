"""Stand-ins for attention kernels that are not installed: they insist on what the real ones document, then do exact math."""

import types

import torch

HALF = (torch.float16, torch.bfloat16)


def math(query, key, value, *, scale, causal=False, bias=None, bottom_right=True):
    """(B, H, S, D) in float64: output, and the log-sum-exp (B, H, S)."""
    groups = query.shape[1] // key.shape[1]
    query, key, value = (
        t.double() for t in (query, key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1))
    )
    scores = query @ key.transpose(-1, -2) * scale
    if bias is not None:
        scores = scores + bias.double()
    if causal:
        shift = key.shape[2] - query.shape[2] if bottom_right else 0
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(shift), float("-inf"))
    lse = scores.logsumexp(-1)
    return (scores - lse[..., None]).exp() @ value, lse.float()


def insist(*tensors, dtypes=HALF, ndim=4):
    for tensor in tensors:
        assert tensor.ndim == ndim, tensor.shape
        assert tensor.dtype in dtypes, tensor.dtype
        assert tensor.is_contiguous()
        assert tensor.numel() > 0
    assert tensors[1].shape[:-1] == tensors[2].shape[:-1]


def dense(query, key, value, scale, causal):
    """(B, S, H, D) kernels; returns output in the input's type and log-sum-exp (B, H, S)."""
    insist(query, key, value)
    output, lse = math(*(t.transpose(1, 2) for t in (query, key, value)), scale=scale, causal=causal)
    return output.transpose(1, 2).to(query.dtype), lse


def packed(query, key, value, starts_query, starts_key, longest_query, longest_key, scale, causal):
    """(T, H, D) kernels; the output starts as NaN, as memory that was never written may hold."""
    insist(query, key, value, ndim=3)
    for starts, total in ((starts_query, query.shape[0]), (starts_key, key.shape[0])):
        assert starts.dtype is torch.int32 and starts[0] == 0 and starts[-1] == total
        assert (starts.diff() > 0).all(), "an empty sequence reached the kernel"
    assert starts_query.diff().max() == longest_query and starts_key.diff().max() == longest_key
    output, lse = (
        torch.full_like(query, float("nan")),
        query.new_full((query.shape[1], query.shape[0]), float("nan")).float(),
    )
    for q, q_end, k, k_end in zip(starts_query[:-1], starts_query[1:], starts_key[:-1], starts_key[1:]):
        parts = (query[q:q_end], key[k:k_end], value[k:k_end])
        one, one_lse = math(*(part.transpose(0, 1)[None] for part in parts), scale=scale, causal=causal)
        output[q:q_end], lse[:, q:q_end] = one[0].transpose(0, 1).to(query.dtype), one_lse[0]
    return output, lse


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, return_attn_probs=False
):
    assert dropout_p == 0.0 and window_size == (-1, -1) and q.shape[-1] <= 256
    output, lse = dense(q, k, v, softmax_scale, causal)
    return (output, lse, None) if return_attn_probs else output


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    return_attn_probs=False,
):
    output, lse = packed(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale, causal)
    return (output, lse, None) if return_attn_probs else output


def flash3_func(q, k, v, softmax_scale=None, causal=False, qv=None, num_splits=1, return_attn_probs=False):
    assert q.shape[-1] % 8 == 0
    output, lse = dense(q, k, v, softmax_scale, causal)
    return (output, lse) if return_attn_probs else output


def flash3_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    seqused_q=None,
    seqused_k=None,
    softmax_scale=None,
    causal=False,
    return_attn_probs=False,
):
    output, lse = packed(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale, causal)
    return (output, lse) if return_attn_probs else output


def flash4_func(q, k, v, softmax_scale=None, causal=False, window_size=(None, None), return_lse=False):
    assert q.shape[-1] % 8 == 0
    output, lse = dense(q, k, v, softmax_scale, causal)
    return output, (lse if return_lse else None)


def aiter_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1, 0), return_lse=False):
    assert q.dtype is torch.bfloat16 and q.shape[-1] in (64, 128)
    output, lse = dense(q, k, v, softmax_scale, causal)
    return (output, lse) if return_lse else output


def sageattn(q, k, v, tensor_layout="HND", is_causal=False, sm_scale=None, return_lse=False, **swallowed):
    assert not swallowed, f"keywords the library would drop: {swallowed}"
    assert tensor_layout == "NHD" and q.shape[-1] <= 128
    assert not is_causal or q.shape[1] == k.shape[1]
    output, lse = dense(q, k, v, sm_scale, is_causal)
    return (output, lse) if return_lse else output


def sageattn_varlen(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, is_causal=False, sm_scale=None, **swallowed
):
    assert not swallowed
    return packed(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, sm_scale, is_causal)[0]


def sageattn3_blackwell(q, k, v, attn_mask=None, is_causal=False):
    insist(q, k, v)
    assert attn_mask is None and q.shape[1] == k.shape[1] and q.shape[-1] in (64, 128)
    output, _ = math(q, k, v, scale=q.shape[-1] ** -0.5, causal=is_causal)
    k -= k.mean(dim=2, keepdim=True)  # As the real one does.
    return output.to(q.dtype)


class LowerTriangularMask:
    """xformers' own object: top-left causal."""


def memory_efficient_attention(query, key, value, attn_bias=None, p=0.0, scale=None, *, op=None):
    insist(query, key, value, dtypes=(*HALF, torch.float32))
    causal, bias = isinstance(attn_bias, LowerTriangularMask), None
    assert not causal or query.shape[1] == key.shape[1]
    if torch.is_tensor(attn_bias):
        bias = attn_bias
        assert bias.shape == (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
        assert bias.dtype is query.dtype and bias.stride(-1) == 1 and bias.stride(-2) % 8 == 0
    tensors = (t.transpose(1, 2) for t in (query, key, value))
    return math(*tensors, scale=scale, causal=causal, bias=bias)[0].transpose(1, 2).to(query.dtype)


def npu_fusion_attention(query, key, value, head_num, input_layout="BSH", atten_mask=None, scale=1.0, keep_prob=1.0):
    insist(query, key, value)
    assert head_num == query.shape[2] and input_layout == "BSND" and keep_prob == 1.0
    bias = None
    if atten_mask is not None:
        assert atten_mask.dtype is torch.bool
        bias = torch.zeros(atten_mask.shape).masked_fill(atten_mask, float("-inf"))  # True blocks.
    output, _ = math(*(t.transpose(1, 2) for t in (query, key, value)), scale=scale, bias=bias)
    return output.transpose(1, 2).to(query.dtype), None, None, None, 0, 0, 0


def xla_flash(q, k, v, causal=False, q_segment_ids=None, kv_segment_ids=None, sm_scale=1.0):
    insist(q, k, v, dtypes=(torch.float32, torch.bfloat16))
    return math(q, k, v, scale=sm_scale, causal=causal)[0].to(q.dtype)


def modules():
    """Fake libraries by import name, for ``sys.modules``."""
    sage = {
        f"sageattn_qk_int8_pv_{name}": sageattn for name in ("fp8_cuda", "fp8_cuda_sm90", "fp16_cuda", "fp16_triton")
    }
    libraries = {
        "flash_attn": {"flash_attn_func": flash_attn_func, "flash_attn_varlen_func": flash_attn_varlen_func},
        "flash_attn_interface": {"flash_attn_func": flash3_func, "flash_attn_varlen_func": flash3_varlen_func},
        "sageattention": {"sageattn": sageattn, "sageattn_varlen": sageattn_varlen, **sage},
        "xformers.ops": {
            "memory_efficient_attention": memory_efficient_attention,
            "LowerTriangularMask": LowerTriangularMask,
        },
        "xformers": {},
        "torch_npu": {"npu_fusion_attention": npu_fusion_attention},
        "torch_xla.experimental.custom_kernel": {"flash_attention": xla_flash},
        "torch_xla.experimental": {},
        "torch_xla": {},
    }
    made = {}
    for name, attributes in libraries.items():
        made[name] = types.ModuleType(name)
        vars(made[name]).update(attributes)
    return made


def hub_functions():
    """What each hub repository's module offers."""
    return {
        "kernels-community/flash-attn2": {
            "flash_attn_func": flash_attn_func,
            "flash_attn_varlen_func": flash_attn_varlen_func,
        },
        "kernels-community/flash-attn3": {"flash_attn_func": flash3_func, "flash_attn_varlen_func": flash3_varlen_func},
        "kernels-community/flash-attn4": {"flash_attn_func": flash4_func},
        "kernels-community/aiter-flash-attn-ck": {"flash_attn_func": aiter_func},
        "SageAttention/sage-attention": {"sageattn": sageattn},
        "SageAttention/sage-blackwell": {"sageattn3_blackwell": sageattn3_blackwell},
    }
