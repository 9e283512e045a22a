"""Real architectures, tiny: denoisers with old and new processors, autoencoders, text encoders, under every CPU backend."""

import pytest
import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLWan,
    FluxTransformer2DModel,
    PixArtTransformer2DModel,
    SD3Transformer2DModel,
    UNet2DConditionModel,
)
from diffusers.models import attention_dispatch
from diffusers.models.attention_processor import AttnProcessor
from transformers import CLIPTextConfig, CLIPTextModel, Qwen2Config, Qwen2Model, T5Config, T5EncoderModel

from paretune.attention import BackendRefused, replacement, route

BACKENDS = ("native", "_native_math", "_native_flash", "flex")


def flux():
    model = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=8,
        pooled_projection_dim=8,
        axes_dims_rope=[4, 4, 8],
    )
    inputs = {
        "hidden_states": torch.randn(1, 16, 4),
        "encoder_hidden_states": torch.randn(1, 5, 8),
        "pooled_projections": torch.randn(1, 8),
        "timestep": torch.tensor([1.0]),
        "img_ids": torch.zeros(16, 3),
        "txt_ids": torch.zeros(5, 3),
    }
    return model, inputs, 2


def unet():
    model = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=8,
        attention_head_dim=2,
        norm_num_groups=4,
    )
    inputs = {
        "sample": torch.randn(2, 4, 8, 8),
        "timestep": torch.tensor(1),
        "encoder_hidden_states": torch.randn(2, 7, 8),
    }
    return model, inputs, 8


def sd3():
    model = SD3Transformer2DModel(
        sample_size=8,
        patch_size=1,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=16,
        caption_projection_dim=16,
        pooled_projection_dim=16,
        out_channels=4,
    )
    inputs = {
        "hidden_states": torch.randn(2, 4, 8, 8),
        "encoder_hidden_states": torch.randn(2, 5, 16),
        "pooled_projections": torch.randn(2, 16),
        "timestep": torch.tensor([1.0, 1.0]),
    }
    return model, inputs, 2


def pixart():
    model = PixArtTransformer2DModel(
        sample_size=8,
        num_layers=1,
        patch_size=2,
        attention_head_dim=8,
        num_attention_heads=2,
        in_channels=4,
        cross_attention_dim=16,
        caption_channels=8,
        norm_type="ada_norm_single",
        out_channels=8,
        num_embeds_ada_norm=8,
        activation_fn="gelu-approximate",
        attention_bias=True,
        norm_elementwise_affine=False,
        norm_eps=1e-6,
        use_additional_conditions=False,
    )
    inputs = {
        "hidden_states": torch.randn(2, 4, 8, 8),
        "timestep": torch.tensor([1, 1]),
        "encoder_hidden_states": torch.randn(2, 6, 8),
        "encoder_attention_mask": torch.tensor([[1] * 6, [1] * 3 + [0] * 3]),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
    }
    return model, inputs, 2


def autoencoder():
    model = AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
    )
    return model, {"sample": torch.randn(1, 3, 16, 16)}, 2


def video_autoencoder():
    model = AutoencoderKLWan(base_dim=3, z_dim=4, dim_mult=[1, 1], num_res_blocks=1, temperal_downsample=[False])
    return model, {"sample": torch.randn(1, 3, 1, 16, 16)}, 2


def clip():
    config = CLIPTextConfig(
        hidden_size=16,
        intermediate_size=16,
        num_attention_heads=2,
        num_hidden_layers=2,
        vocab_size=50,
        max_position_embeddings=16,
        bos_token_id=0,
        eos_token_id=2,
    )
    return CLIPTextModel(config), {"input_ids": torch.randint(3, 49, (2, 12))}, 2


def t5():
    config = T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2)
    mask = torch.tensor([[1] * 9, [1] * 5 + [0] * 4])
    return T5EncoderModel(config), {"input_ids": torch.randint(3, 49, (2, 9)), "attention_mask": mask}, 2


def qwen():
    config = Qwen2Config(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=0,
        eos_token_id=2,
    )
    mask = torch.tensor([[1] * 9, [0] * 4 + [1] * 5])
    inputs = {"input_ids": torch.randint(3, 49, (2, 9)), "attention_mask": mask, "use_cache": False}
    return Qwen2Model(config), inputs, 2


def output_of(model, inputs):
    result = model(**inputs)
    return next(value for value in result.values() if torch.is_tensor(value))


@pytest.fixture
def calls(monkeypatch):
    seen, compute = [], replacement.compute
    monkeypatch.setattr(
        replacement, "compute", lambda entry, *rest: (seen.append(entry.name), compute(entry, *rest))[1]
    )
    return seen


@pytest.mark.parametrize("make", [flux, unet, sd3, pixart, autoencoder, video_autoencoder, clip, t5, qwen])
@torch.no_grad()
def test_every_cpu_backend_equals_the_untouched_model(make, calls):
    torch.manual_seed(0)
    model, inputs, num_layers = make()
    model.eval()
    expected = output_of(model, inputs)
    default = attention_dispatch._AttentionBackendRegistry.get_active_backend()
    # What flex compiles for one denoiser and one masked encoder, it compiles for all.
    for backend in BACKENDS if make in (flux, t5) else BACKENDS[:3]:
        calls.clear()
        with route(model, backend) as routed:
            output = output_of(model, inputs)
            assert len(routed.layers) == num_layers and not routed.missed
        if backend == "native":
            assert torch.equal(output, expected)
        else:
            assert set(calls) == {backend} and len(calls) >= num_layers
            torch.testing.assert_close(output, expected, atol=2e-5, rtol=1e-4)
        assert torch.equal(output_of(model, inputs), expected)
    assert attention_dispatch._AttentionBackendRegistry.get_active_backend() == default


@torch.no_grad()
def test_a_backend_set_with_diffusers_comes_back():
    model, inputs, _ = flux()
    other, *_ = flux()
    model.eval()
    for module in model.modules():
        if hasattr(module, "processor"):
            module.processor._attention_backend = "_native_math"
    processors = dict(model.attn_processors)
    with route(model, "_native_flash"):
        output_of(model, inputs)
        assert all(p._attention_backend is None for p in other.attn_processors.values())
    assert model.attn_processors == processors
    assert all(p._attention_backend == "_native_math" for p in model.attn_processors.values())


@torch.no_grad()
def test_explicit_products_are_reported_not_passed_over():
    model, *_ = unet()
    model.set_attn_processor(AttnProcessor())
    with pytest.raises(BackendRefused, match="AttnProcessor does not call"):
        route(model, "_native_math")
    encoder = CLIPTextModel._from_config(clip()[0].config, attn_implementation="eager")
    with pytest.raises(BackendRefused, match="eager"):
        route(encoder, "_native_math")


@torch.no_grad()
def test_what_a_layer_asks_for_and_a_backend_lacks_is_refused():
    layer = replacement.dispatch_for(
        type("Chosen", (), {"name": "_native_math"})(), attention_dispatch.dispatch_attention_fn
    )
    query = torch.randn(1, 4, 2, 8)
    with pytest.raises(BackendRefused, match="window_size"):
        layer(query, query, query, attention_kwargs={"window_size": (4, 4)})
    with pytest.raises(BackendRefused, match="context parallelism"):
        layer(query, query, query, parallel_config=object())
    with pytest.raises(BackendRefused, match="only flex takes it"):
        layer(query, query, query, attn_mask=object())
