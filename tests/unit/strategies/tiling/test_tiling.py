"""Tiled and whole answers agree where they must, seams are bounded where they may differ, and undo leaves nothing."""

from __future__ import annotations

import pytest
import torch
from support.toy_codecs import CausalCodec, ConstantPerCall, PointwiseCodec, PositionCodec

from paretune.strategies import Applied, PlanError, Unsupported


@pytest.mark.parametrize("ratio", [1, 3, 8])
@pytest.mark.parametrize(("tile_size", "overlap"), [(8, 0.0), (24, 0.3), (40, 0.37), (64, 0.9), ((24, 64), 0.5)])
def test_a_pointwise_codec_is_tiled_to_the_bit(ratio, tile_size, overlap):
    codec, generator = PointwiseCodec(ratio), torch.Generator().manual_seed(0)
    written = f"[{tile_size[0]},{tile_size[1]}]" if isinstance(tile_size, tuple) else tile_size
    for height, width in [(1, 1), (7, 9), (8, 17), (23, 5)]:
        z = torch.randn(2, 4, height, width, generator=generator)
        x = torch.randn(1, 3, height * ratio + ratio // 2, width * ratio, generator=generator)
        decoded, encoded = codec.decode(z)["sample"], codec.encode(x)
        with Applied(f"vae_tiling(tile_size={written},overlap={overlap})", codec, "cpu"):
            assert torch.equal(codec.decode(z)["sample"], decoded)
            assert torch.equal(codec.decode(z=z, return_dict=False)[0], decoded)
            assert torch.equal(codec.encode(x), encoded)


@pytest.mark.parametrize(("channels", "image_channels"), [(1, 1), (4, 6), (16, 3)])
def test_channel_counts_are_taken_from_the_tensors(channels, image_channels):
    codec = PointwiseCodec(8, image_channels)
    z = torch.randn(1, channels, 12, 12)
    whole = codec.decode(z)["sample"]
    with Applied("vae_tiling(tile_size=32)", codec, "cpu"):
        assert torch.equal(codec.decode(z)["sample"], whole)


def test_tiles_are_no_larger_than_asked():
    codec = PointwiseCodec(8)
    with Applied("vae_tiling(tile_size=[40,100],overlap=0.25)", codec, "cpu"):
        codec.decode(torch.randn(1, 4, 32, 32))
    assert {shape[-2:] for shape in codec.shapes[1:]} == {(5, 12)}


def test_pictures_up_to_the_minimum_are_left_whole():
    codec = PointwiseCodec(8)
    with Applied("vae_tiling(tile_size=32,min_size=64)", codec, "cpu"):
        codec.decode(torch.randn(1, 4, 8, 8))
        assert codec.shapes[-1] == (1, 4, 8, 8)
        codec.decode(torch.randn(1, 4, 8, 9))
        assert codec.shapes[-1] == (1, 4, 4, 4)


@pytest.mark.parametrize("overlap", [0.125, 0.25, 0.5])
@pytest.mark.parametrize("size", [16, 17, 29, 40])
def test_seams_are_bounded_also_where_four_tiles_meet(overlap, size):
    codec = ConstantPerCall(step=1.0)
    with Applied(f"vae_tiling(tile_size=16,overlap={overlap})", codec, "cpu"):
        picture = codec.decode(torch.zeros(1, 1, size, size + 5))[0, 0]
    across = (picture[:, 1:] - picture[:, :-1]).abs().max()
    width, per_row = int(overlap * 16), float(picture[0].max()) + 1
    assert across <= 1 / width + 1e-5
    assert (picture[1:] - picture[:-1]).abs().max() <= per_row / width + 1e-5


def test_a_constant_decoder_stays_constant():
    codec = ConstantPerCall(ratio=3, first=1.0, step=0.0)
    with Applied("vae_tiling(tile_size=21,overlap=0.3)", codec, "cpu"):
        assert torch.equal(codec.decode(torch.zeros(1, 1, 31, 29)), torch.ones(1, 1, 93, 87))


def test_height_and_width_are_treated_alike():
    z = torch.randn(1, 1, 19, 31)

    class Blur(torch.nn.Module):
        spatial_compression_ratio = 1

        def decode(self, latents):
            return torch.nn.functional.avg_pool2d(latents, 3, stride=1, padding=1)

    codec = Blur()
    with Applied("vae_tiling(tile_size=[8,12],overlap=0.25)", codec, "cpu"):
        one = codec.decode(z)
    with Applied("vae_tiling(tile_size=[12,8],overlap=0.25)", codec, "cpu"):
        other = codec.decode(z.mT).mT
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("num_latents", range(1, 13))
@pytest.mark.parametrize("tile_frames", ["null", 8, 12])
def test_causal_frames_are_counted_right_in_time_tiles(num_latents, tile_frames):
    codec, generator = CausalCodec(), torch.Generator().manual_seed(1)
    z = torch.randn(1, 8, num_latents, 5, 7, generator=generator)
    x = torch.randn(2, 3, 1 + (num_latents - 1) * 4, 20, 28, generator=generator)
    decoded, encoded = codec.decode(z), codec.encode(x)
    assert decoded.shape[2] == 1 + (num_latents - 1) * 4
    with Applied(f"vae_tiling(tile_size=12,overlap=0.34,tile_frames={tile_frames})", codec, "cpu"):
        assert torch.equal(codec.decode(z), decoded)
        assert torch.equal(codec.encode(x), encoded)


def test_tiling_is_said_to_be_lossy_and_a_position_dependent_decoder_shows_why():
    codec, z = PositionCodec(), torch.zeros(1, 1, 4, 40)
    whole = codec.decode(z)
    with Applied("vae_tiling(tile_size=16)", codec, "cpu") as applied:
        assert applied.plan.is_lossy
        assert not torch.allclose(codec.decode(z), whole)


@pytest.mark.parametrize(
    "text",
    ["overlap=1.0", "overlap=1", "overlap=-0.1", "overlap=true", "tile_size=0", "tile_size=[8]", "min_size=0"],
)
def test_senseless_settings_are_refused_at_once(text):
    with pytest.raises(PlanError, match=text.partition("=")[0]):
        Applied(f"vae_tiling({text})", PointwiseCodec(8), "cpu")


def test_a_tile_smaller_than_a_latent_is_refused():
    codec = CausalCodec()
    with pytest.raises(Unsupported, match="no latent"):
        Applied("vae_tiling(tile_size=3)", codec, "cpu")


def test_a_wrongly_stated_ratio_is_an_error_not_a_wrong_picture():
    codec = PointwiseCodec(4)
    codec.spatial_compression_ratio = 8
    with Applied("vae_tiling(tile_size=16)", codec, "cpu"), pytest.raises(ValueError, match="not the one it states"):
        codec.decode(torch.randn(1, 4, 20, 20))


def test_no_time_tiles_without_a_stated_ratio():
    class Video(torch.nn.Module):
        spatial_compression_ratio = 1

        def decode(self, z):
            return z

    codec = Video()
    with Applied("vae_tiling(tile_frames=8)", codec, "cpu"), pytest.raises(Unsupported, match="temporal"):
        codec.decode(torch.randn(1, 1, 9, 4, 4))


def test_undo_leaves_the_object_as_it_was():
    codec = PointwiseCodec(8)
    cls, attributes = type(codec), set(vars(codec))
    with Applied("vae_tiling", codec, "cpu"):
        assert isinstance(codec, cls) and type(codec).__name__ == cls.__name__
        assert type(PointwiseCodec(8)) is cls
    assert type(codec) is cls and set(vars(codec)) == attributes


def test_an_error_inside_a_tile_leaves_tiling_at_work():
    codec = PointwiseCodec(8)
    with Applied("vae_tiling(tile_size=32)", codec, "cpu"):
        with pytest.raises(Unsupported, match="shape"):
            codec.decode(torch.randn(4, 8, 8))
        z = torch.randn(1, 4, 9, 9)
        assert codec.decode(z)["sample"].shape == (1, 3, 72, 72)
