"""Every overlap, every subset of the settings, every count of channels: the right size and the right picture."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from support.toy_codecs import CausalCodec, ConstantPerCall, PointwiseCodec

from paretune.strategies import Applied

OVERLAPS = [round(0.01 * percent, 2) for percent in range(96)]


@pytest.mark.parametrize("tile_size", [8, 24, 40])
def test_every_overlap_gives_the_whole_picture(tile_size: int) -> None:
    codec, generator = PointwiseCodec(8), torch.Generator().manual_seed(4)
    z = torch.randn(1, 4, 7, 6, generator=generator)
    whole = codec.decode(z)["sample"]
    for overlap in OVERLAPS:
        with Applied(f"vae_tiling(tile_size={tile_size},overlap={overlap},min_size=8)", codec, "cpu"):
            assert torch.equal(codec.decode(z)["sample"], whole), overlap


@pytest.mark.parametrize(("tile", "overlap"), [(6, 2), (9, 4), (5, 0), (7, 6)])
def test_sizes_around_a_step_keep_the_weights_at_one(tile: int, overlap: int) -> None:
    step = tile - overlap
    sizes = {k * step + off for k in range(1, 5) for off in (-1, 0, 1)} | {tile - overlap + 1, tile + 1}
    for length in sorted(size for size in sizes if size > 0):
        codec = ConstantPerCall(ratio=2, first=1.0, step=0.0)
        with Applied(f"vae_tiling(tile_size={2 * tile},overlap={overlap / tile})", codec, "cpu"):
            assert torch.equal(codec.decode(torch.zeros(1, 1, length, tile)), torch.ones(1, 1, 2 * length, 2 * tile))


CHOICES: dict[str, Any] = {"tile_size": 12, "overlap": 0.4, "min_size": 5, "tile_frames": 8, "keep_weights": "true"}


@pytest.mark.parametrize(
    "names", [c for n in range(len(CHOICES) + 1) for c in itertools.combinations(CHOICES, n)], ids="+".join
)
def test_any_subset_of_the_settings_decodes_and_encodes_whole(names: tuple[str, ...]) -> None:
    codec, generator = CausalCodec(), torch.Generator().manual_seed(6)
    z = torch.randn(1, 8, 4, 7, 9, generator=generator)
    x = torch.randn(1, 3, 13, 28, 36, generator=generator)
    decoded, encoded = codec.decode(z), codec.encode(x)
    written = ",".join(f"{name}={CHOICES[name]}" for name in names)
    with Applied(f"vae_tiling({written})", codec, "cpu"):
        assert torch.equal(codec.decode(z), decoded)
        assert torch.equal(codec.encode(x), encoded)


@pytest.mark.parametrize(("latent_channels", "image_channels"), [(1, 6), (16, 1)])
@pytest.mark.parametrize("sample_size", [16, (16, 24)])
@pytest.mark.parametrize("num_levels", [1, 2])
def test_a_library_autoencoder_of_any_channels_is_tiled(
    latent_channels: int, image_channels: int, sample_size: Any, num_levels: int
) -> None:
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    codec = diffusers.AutoencoderKL(
        in_channels=image_channels,
        out_channels=image_channels,
        latent_channels=latent_channels,
        block_out_channels=(8,) * num_levels,
        down_block_types=("DownEncoderBlock2D",) * num_levels,
        up_block_types=("UpDecoderBlock2D",) * num_levels,
        norm_num_groups=4,
        sample_size=sample_size,
    ).eval()
    ratio = 2 ** (num_levels - 1)
    z, x = torch.randn(2, latent_channels, 9, 12), torch.randn(2, image_channels, 9 * ratio, 12 * ratio)
    with torch.no_grad():
        decoded, encoded = codec.decode(z).sample, codec.encode(x).latent_dist.parameters
        with Applied(f"vae_tiling(tile_size={4 * ratio},overlap=0.5) + vae_slicing", codec, "cpu"):
            assert codec.decode(z).sample.shape == decoded.shape == x.shape
            assert codec.encode(x).latent_dist.parameters.shape == encoded.shape
        assert torch.equal(codec.decode(z).sample, decoded)
