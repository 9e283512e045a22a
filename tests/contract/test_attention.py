"""One contract for every attention backend: each claim of its entry is right, everything else is refused with a reason.

Backends that run on a CPU are real here; the others do exact math behind stand-ins that insist on the documented layout, types
and masks, so that what is tested is everything around the kernel.
"""

import itertools
import sys
import types

import pytest
import torch
from support import attention_stubs

from paretune.attention import BackendRefused, attend, catalog, hub
from paretune.attention.kernels.request import Request
from paretune.attention.reference import reference

REAL = ("native", "_native_math", "_native_flash", "flex")
NEEDS_CUDA = ("_native_efficient", "_native_cudnn")
STUBBED = [name for name in catalog() if name not in REAL + NEEDS_CUDA]
HERE = [*REAL, *STUBBED]
TOLERANCE = {torch.float64: 1e-6, torch.float32: 5e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}
# batch, queries, keys, query heads, key heads, head size
SIZES = [(2, 17, 17, 2, 2, 64), (3, 5, 33, 4, 2, 64), (2, 33, 7, 2, 1, 128), (1, 1, 1, 1, 1, 64), (2, 9, 9, 2, 2, 24)]
MASKS = ["left", "right", "holes", "per_query", "per_head", "additive", "lowest", "open", "zero", "lower"]


@pytest.fixture(autouse=True)
def stubs(monkeypatch):
    for name, module in attention_stubs.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    functions = attention_stubs.hub_functions()
    monkeypatch.setattr(hub, "load_kernel", lambda kernel: types.SimpleNamespace(**functions[kernel.repo]))
    monkeypatch.setattr("paretune.attention.contract.require", lambda entry, device: None)


def limits(name):
    return catalog()[name].limits_for("cpu")


def dtype_of(name):
    return getattr(torch, limits(name).dtypes[0])


def tensors(size, dtype, seed=0):
    batch, queries, keys, heads, key_heads, width = size
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, queries, heads, width), (batch, keys, key_heads, width), (batch, keys, key_heads, width)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def make_mask(kind, size, dtype):
    batch, queries, keys, heads, *_ = size
    generator = torch.Generator().manual_seed(1)
    lengths = torch.arange(batch) * max(1, keys // 3)  # The first sample has nothing to attend to.
    position = torch.arange(keys)
    if kind == "left":
        return (position >= keys - lengths[:, None])[:, None, None]
    if kind == "right":
        return (position < lengths[:, None])[:, None, None]
    if kind == "holes":
        return torch.rand(batch, 1, 1, keys, generator=generator) > 0.5
    if kind == "open":
        return torch.ones(batch, 1, queries, keys, dtype=torch.bool)
    if kind == "zero":
        return torch.zeros(1, 1, queries, keys, dtype=dtype)
    if kind == "lower":
        return torch.ones(queries, keys, dtype=torch.bool).tril()[None, None]
    if kind == "per_query":
        return torch.rand(batch, 1, queries, keys, generator=generator) > 0.4
    if kind == "per_head":
        return torch.rand(1, heads, queries, keys, generator=generator) > 0.4
    bias = torch.randn(batch, 1, queries, keys, generator=generator)
    if kind == "additive":
        return bias.masked_fill(torch.rand(bias.shape, generator=generator) > 0.7, float("-inf"))
    return bias.to(dtype).masked_fill(torch.rand(bias.shape, generator=generator) > 0.6, torch.finfo(dtype).min)


def computed(name, size, *, kind=None, dtype=None, causal=False, lse=False, scale=None):
    """Whether the call was computed (then it was right) rather than refused."""
    query, key, value = tensors(size, dtype or dtype_of(name))
    mask = None if kind is None else make_mask(kind, size, query.dtype)
    try:
        result = attend(
            query,
            key,
            value,
            backend=name,
            mask=mask,
            causal=causal,
            scale=scale,
            enable_gqa=size[3] != size[4],
            return_lse=lse,
        )
    except BackendRefused as error:
        assert str(error).startswith(name) or "mask" in str(error)
        return False
    lowest = mask is not None and mask.is_floating_point()
    clean = mask.masked_fill(mask <= torch.finfo(mask.dtype).min, float("-inf")) if lowest else mask
    expected, expected_lse = reference(
        query, key, value, Request(clean, causal, scale or size[5] ** -0.5, size[3] != size[4], lse)
    )
    output = result[0] if lse else result
    assert output.shape == expected.shape and output.dtype is query.dtype
    assert (output.double() - expected).abs().max() <= TOLERANCE[query.dtype]
    if lse:
        assert result[1].dtype is torch.float32 and result[1].shape == expected_lse.shape
        assert torch.equal(result[1].isneginf(), expected_lse.isneginf())
        # The log-sum-exp is kept in float32, whatever it was made from.
        torch.testing.assert_close(result[1].double(), expected_lse, atol=2e-2, rtol=1e-2)
    return True


def sizes_for(name):
    return SIZES[:2] if name == "flex" else SIZES


@pytest.mark.parametrize("name", HERE)
def test_plain_calls_of_every_size_are_right_or_refused(name):
    results = [computed(name, size, scale=scale) for size in sizes_for(name) for scale in (None, 0.3)]
    assert any(results)
    assert computed(name, SIZES[0]), "a plain call of 17 tokens must run"


@pytest.mark.parametrize("name", HERE)
def test_every_type_it_claims_is_right(name):
    for dtype in limits(name).dtypes:
        assert computed(name, SIZES[0], dtype=getattr(torch, dtype))
    for dtype in {"float64", "float32", "float16"} - set(limits(name).dtypes):
        assert not computed(name, SIZES[0], dtype=getattr(torch, dtype))


@pytest.mark.parametrize("name", HERE)
def test_causal_is_aligned_at_the_first_key_or_refused(name):
    square, fewer_queries, more_queries = SIZES[0], SIZES[1], SIZES[2]
    assert computed(name, square, causal=True)
    assert computed(name, fewer_queries, causal=True), "dropping unreachable keys makes it square"
    assert computed(name, more_queries, causal=True) == (limits(name).causal == "top_left")


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("kind", MASKS)
def test_masks_are_right_or_refused(name, kind):
    claims = {
        "none": {"open", "zero", "lower"},
        "padding": {"open", "zero", "lower", "left", "right", "holes"},
        "boolean": set(MASKS) - {"additive", "lowest"},
        "dense": set(MASKS),
    }
    assert computed(name, SIZES[0], kind=kind) == (kind in claims[limits(name).mask])
    if name == "flex":
        return  # Every size is compiled for; two sizes of it are in the other tests.
    for size, causal in itertools.product(SIZES[1:], (False, True)):
        computed(name, size, kind=kind, causal=causal)


@pytest.mark.parametrize("name", [name for name in HERE if limits(name).mask != "none"])
def test_a_mask_of_keys_may_have_two_dimensions(name):
    query, key, value = tensors(SIZES[0], dtype_of(name))
    mask = make_mask("right", SIZES[0], query.dtype)
    mask[0, ..., :2] = True
    short = attend(query, key, value, backend=name, mask=mask[:, 0, 0])
    assert torch.equal(short, attend(query, key, value, backend=name, mask=mask))
    assert not torch.equal(short, attend(query, key, value, backend=name))


@pytest.mark.parametrize("name", HERE)
def test_grouped_heads_equal_repeated_ones(name):
    size = (2, 9, 9, 4, 2, 64)
    query, key, value = tensors(size, dtype_of(name))
    grouped = attend(query, key, value, backend=name, enable_gqa=True)
    spread = attend(query, key.repeat_interleave(2, 2), value.repeat_interleave(2, 2), backend=name)
    torch.testing.assert_close(grouped, spread, atol=TOLERANCE[query.dtype], rtol=0)
    with pytest.raises(BackendRefused, match="enable_gqa"):
        attend(query, key[:, :, :1], value[:, :, :1], backend=name)
    with pytest.raises(BackendRefused, match="not a multiple"):
        attend(query[:, :, :3], key, value, backend=name, enable_gqa=True)


@pytest.mark.parametrize("name", HERE)
def test_log_sum_exp_has_one_form_and_merges(name):
    if not limits(name).lse:
        assert not computed(name, SIZES[0], lse=True)
        return
    assert computed(name, SIZES[0], lse=True) and computed(name, SIZES[1], lse=True, causal=True)
    if limits(name).mask != "none":
        assert computed(name, SIZES[0], lse=True, kind="holes")
    query, key, value = tensors(SIZES[0], dtype_of(name))
    whole = attend(query, key, value, backend=name)
    parts = [attend(query, key[:, s], value[:, s], backend=name, return_lse=True) for s in (slice(0, 5), slice(5, 17))]
    weights = torch.stack([lse for _, lse in parts]).softmax(0).transpose(2, 3)[..., None]
    merged = sum(weight * output for weight, (output, _) in zip(weights, parts))
    torch.testing.assert_close(merged, whole.to(merged.dtype), atol=2 * TOLERANCE[query.dtype], rtol=0)


@pytest.mark.parametrize("name", HERE)
def test_strides_do_not_matter(name):
    batch, length, heads, width = 2, 17, 2, 64
    dtype = dtype_of(name)
    fused = torch.randn(batch, length, 3, heads, width).to(dtype)
    query, key, value = fused.unbind(2)
    plain = attend(query.contiguous(), key.contiguous(), value.contiguous(), backend=name)
    for variant in (
        (query, key, value),
        [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (query, key, value)],
        [torch.nn.functional.pad(t, (3, 1))[..., 3:-1] for t in (query, key, value)],
    ):
        torch.testing.assert_close(attend(*variant, backend=name), plain, atol=TOLERANCE[dtype], rtol=0)
    shared = key[:, :, :1].expand(-1, -1, heads, -1)
    expanded = attend(query, shared, shared, backend=name)
    torch.testing.assert_close(
        expanded, attend(query, shared.clone(), shared.clone(), backend=name), atol=TOLERANCE[dtype], rtol=0
    )


@pytest.mark.parametrize("name", HERE)
def test_inputs_are_left_alone(name):
    given = tensors(SIZES[0], dtype_of(name))
    kept = [tensor.clone() for tensor in given]
    attend(*given, backend=name)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(given, kept))


@pytest.mark.parametrize("name", [name for name in HERE if limits(name).mask != "none"])
def test_what_lies_in_padding_never_shows(name):
    size = (3, 9, 9, 2, 2, 64)
    query, key, value = tensors(size, dtype_of(name))
    mask = make_mask("left", size, query.dtype)
    clean = attend(query, key, value, backend=name, mask=mask)
    blocked = ~mask[:, 0, 0]
    key[blocked], value[blocked] = float("nan"), float("inf")
    assert torch.equal(attend(query, key, value, backend=name, mask=mask), clean)
    with torch.no_grad():
        assert torch.equal(attend(query, key, value, backend=name, mask=mask), clean)
    assert (clean[0] == 0).all(), "a sample with nothing to attend to is zero"


@pytest.mark.parametrize("name", [name for name in HERE if limits(name).mask != "none"])
def test_each_sample_is_masked_by_its_own_mask(name):
    size = (3, 9, 9, 2, 2, 64)
    query, key, value = tensors(size, dtype_of(name))
    mask = make_mask("right", size, query.dtype)
    together = attend(query, key, value, backend=name, mask=mask)
    for i in range(3):
        one = slice(i, i + 1)
        alone = attend(query[one], key[one], value[one], backend=name, mask=mask[one])
        torch.testing.assert_close(together[one], alone, atol=TOLERANCE[query.dtype], rtol=0)


@pytest.mark.parametrize("name", HERE)
def test_what_it_cannot_do_is_refused(name):
    query, key, value = tensors(SIZES[0], dtype_of(name))
    with pytest.raises(BackendRefused, match="dropout"):
        attend(query, key, value, backend=name, dropout_p=0.1)
    with pytest.raises(BackendRefused, match="types"):
        attend(query, key.double() if key.dtype != torch.float64 else key.float(), value, backend=name)
    with pytest.raises(BackendRefused, match="belong together"):
        attend(query, key[:, :5], value, backend=name)
    for width in (*range(1, 130, 9), 192, 256, 512):
        size = (1, 3, 3, 1, 1, width)
        if name != "flex" or width < 4:
            computed(name, size)


@pytest.mark.parametrize("name", HERE)
def test_nothing_in_gives_nothing_out(name):
    query, key, value = tensors((2, 5, 5, 2, 2, 64), dtype_of(name))
    assert attend(query[:, :0], key, value, backend=name).shape == (2, 0, 2, 64)
    assert attend(query[:0], key[:0], value[:0], backend=name).shape == (0, 5, 2, 64)
    assert (attend(query, key[:, :0], value[:, :0], backend=name) == 0).all()
