"""The autoencoders of diffusers: sliced and tiled through our tiler, with the classes that cannot named."""

from __future__ import annotations

import functools

import pytest
import torch

from paretune.strategies import Applied, Unsupported

diffusers = pytest.importorskip("diffusers")

_CAUSAL = {"base_dim": 8, "z_dim": 4, "num_res_blocks": 1, "latents_mean": [0.0] * 4, "latents_std": [1.0] * 4}
_CODECS = {
    "AutoencoderKL": {
        "block_out_channels": [8, 8, 16, 16],
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "down_block_types": ["DownEncoderBlock2D"] * 4,
        "up_block_types": ["UpDecoderBlock2D"] * 4,
    },
    "AutoencoderTiny": {},
    "AutoencoderKLWan": _CAUSAL,
    "AutoencoderKLQwenImage": _CAUSAL,
    "AutoencoderKLCogVideoX": {
        "block_out_channels": [8, 8, 16, 16],
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "latent_channels": 4,
        "sample_height": 32,
        "sample_width": 48,
    },
    "AutoencoderKLHunyuanVideo": {
        "block_out_channels": [8, 8, 16, 16],
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "latent_channels": 4,
    },
    "AutoencoderKLLTXVideo": {
        "latent_channels": 4,
        "block_out_channels": [8, 8, 16, 16],
        "decoder_block_out_channels": [8, 8, 16, 16],
        "layers_per_block": [1] * 5,
        "decoder_layers_per_block": [1] * 5,
    },
}


@functools.cache
def codec_of(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return getattr(diffusers, name)(**_CODECS[name]).eval().requires_grad_(False)


def latents_of(name: str, num_samples: int = 1, size: int = 6) -> torch.Tensor:
    frames = () if name in ("AutoencoderKL", "AutoencoderTiny") else (3,)
    generator = torch.Generator().manual_seed(1)
    return torch.randn(num_samples, 4, *frames, size, size + 1, generator=generator)


@pytest.mark.parametrize("name", _CODECS)
def test_slicing_gives_the_same_pictures(name):
    codec, z = codec_of(name), latents_of(name, 2, size=3)
    whole = codec.decode(z)
    with Applied("vae_slicing", codec, "cpu"):
        cut = codec.decode(z)
    assert type(cut) is type(whole)
    torch.testing.assert_close(cut.sample, whole.sample, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", _CODECS)
def test_tiles_are_the_models_own_answers_put_where_they_belong(name):
    codec, z = codec_of(name), latents_of(name)
    whole = codec.decode(z).sample
    ratio = whole.shape[-1] // z.shape[-1]
    with Applied(f"vae_tiling(tile_size={5 * ratio},overlap=0.4)", codec, "cpu") as applied:
        cut = codec.decode(z, return_dict=False)[0]
        (facts,) = applied.facts.values()
    assert facts["compression_ratio"] == ratio and facts["tile_size_latents"] == [5, 5]
    assert cut.shape == whole.shape
    corner, far = codec.decode(z[..., :5, :5]).sample, codec.decode(z[..., -5:, -5:]).sample
    assert torch.equal(cut[..., :ratio, :ratio], corner[..., :ratio, :ratio])
    assert torch.equal(cut[..., -ratio:, -ratio:], far[..., -ratio:, -ratio:])


@pytest.mark.parametrize("name", ["AutoencoderKL", "AutoencoderKLWan"])
def test_encoding_is_tiled_too(name):
    codec = codec_of(name)
    video = (5,) if name == "AutoencoderKLWan" else ()
    x = torch.rand(1, 3, *video, 52, 44, generator=torch.Generator().manual_seed(2)) * 2 - 1
    whole = codec.encode(x).latent_dist
    with Applied("vae_tiling(tile_size=32,overlap=0.25)", codec, "cpu"):
        cut = codec.encode(x).latent_dist
    assert type(cut) is type(whole) and cut.mode().shape == whole.mode().shape
    assert torch.isfinite(cut.parameters).all()


@pytest.mark.parametrize(("name", "num_frames"), [("AutoencoderKLWan", 5), ("AutoencoderKLHunyuanVideo", 4)])
def test_time_tiles_of_causal_decoders(name, num_frames):
    codec = codec_of(name)
    z = torch.randn(1, 4, num_frames, 3, 3, generator=torch.Generator().manual_seed(3))
    whole = codec.decode(z).sample
    with Applied("vae_tiling(tile_frames=12)", codec, "cpu"):
        assert codec.decode(z).sample.shape == whole.shape == (1, 3, 1 + (num_frames - 1) * 4, 24, 24)


@pytest.mark.parametrize("strategy", ["vae_slicing", "vae_tiling"])
@pytest.mark.parametrize("name", ["AsymmetricAutoencoderKL", "AutoencoderKLTemporalDecoder"])
def test_classes_that_cannot_are_named(strategy, name):
    with pytest.raises(Unsupported, match=name):
        Applied(strategy, getattr(diffusers, name)(), "cpu")


def test_other_objects_of_the_class_are_untouched():
    one, other = codec_of("AutoencoderKL"), diffusers.AutoencoderKL(**_CODECS["AutoencoderKL"])
    with Applied("vae_tiling + vae_slicing", one, "cpu"):
        assert isinstance(one, type(other)) and type(one) is not type(other)
    assert type(one) is type(other)
