"""Small autoencoders whose right answer is known: pointwise ones, and ones that tell tiles apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["CausalCodec", "ConstantPerCall", "PointwiseCodec", "PositionCodec", "SampleCodec"]


class PointwiseCodec(nn.Module):
    """Every latent decides its own ``ratio`` x ``ratio`` pixels: tiled and whole answers must agree to the bit."""

    def __init__(self, ratio: int, image_channels: int = 3) -> None:
        super().__init__()
        self.ratio, self.image_channels = ratio, image_channels
        self.gain = nn.Parameter(torch.tensor(1.7))
        self.shapes: list[tuple[int, ...]] = []

    def decode(self, z: torch.Tensor, return_dict: bool = True) -> Any:
        self.shapes.append(tuple(z.shape))
        grown = z.repeat_interleave(self.ratio, -1).repeat_interleave(self.ratio, -2)
        sample = (grown.sum(1, keepdim=True) * self.gain).repeat_interleave(self.image_channels, 1)
        return {"sample": sample} if return_dict else (sample,)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        self.shapes.append(tuple(x.shape))
        height, width = x.shape[-2] // self.ratio * self.ratio, x.shape[-1] // self.ratio * self.ratio
        return x[..., : height : self.ratio, : width : self.ratio] * self.gain


class CausalCodec(nn.Module):
    """A video codec with patches inside: the first latent is one frame, each other one ``frame_ratio`` frames.

    It remembers the last latent it saw within a call, as causal convolutions do, and forgets between calls.
    """

    def __init__(self, frame_ratio: int = 4, patch: int = 2, ratio: int = 2) -> None:
        super().__init__()
        self.temporal_compression_ratio, self.spatial_compression_ratio = frame_ratio, patch * ratio
        self.patch, self.ratio = patch, ratio
        self.use_tiling = self.use_slicing = False

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        frames = [z[:, :, :1], z[:, :, 1:].repeat_interleave(self.temporal_compression_ratio, 2)]
        grown = torch.cat(frames, 2).repeat_interleave(self.ratio, -1).repeat_interleave(self.ratio, -2)
        batch, channels, length, height, width = grown.shape
        patches = grown.view(batch, channels // self.patch**2, self.patch, self.patch, length, height, width)
        return patches.permute(0, 1, 4, 5, 2, 6, 3).reshape(batch, -1, length, height * self.patch, width * self.patch)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        step = self.spatial_compression_ratio
        return x[:, :, :: self.temporal_compression_ratio, ::step, ::step] * 0.5


class ConstantPerCall(nn.Module):
    """Each call answers one more than the call before: seams between tiles show."""

    spatial_compression_ratio = 1

    def __init__(self, ratio: int = 1, *, first: float = 0.0, step: float = 1.0) -> None:
        super().__init__()
        self.spatial_compression_ratio = ratio
        self.next, self.step = first, step

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        value, self.next = self.next, self.next + self.step
        shape = (
            *z.shape[:-2],
            z.shape[-2] * self.spatial_compression_ratio,
            z.shape[-1] * self.spatial_compression_ratio,
        )
        return torch.full(shape, value)


class PositionCodec(nn.Module):
    """Answers depend on where a pixel lies in the picture it is given: tiling changes them."""

    spatial_compression_ratio = 1

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return z + torch.linspace(0, 1, z.shape[-1])


class SampleCodec(nn.Module):
    """Remembers the batch sizes it saw; ``decode`` takes one time a sample and ``encode`` answers a distribution."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GroupNorm(2, 4)
        self.batches: list[int] = []

    def decode(self, z: torch.Tensor, temb: torch.Tensor | None = None, return_dict: bool = True) -> Any:
        self.batches.append(z.shape[0])
        out = self.layer(z) if temb is None else self.layer(z) * temb.view(-1, 1, 1, 1)
        return {"sample": out} if return_dict else (out,)

    def encode(self, x: torch.Tensor) -> Any:
        self.batches.append(x.shape[0])
        return (Posterior(torch.cat([self.layer(x), x.abs()], 1)),)


class Posterior:
    """A normal distribution from its parameters, as autoencoders of diffusers answer one."""

    def __init__(self, parameters: torch.Tensor, deterministic: bool = False) -> None:
        self.parameters, self.deterministic = parameters, deterministic
        self.mean, self.std = parameters.chunk(2, dim=1)

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        return self.mean + self.std * torch.randn(self.mean.shape, generator=generator)
