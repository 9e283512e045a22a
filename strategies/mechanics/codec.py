"""What an autoencoder offers: which classes can be sliced or tiled, and by how much they compress."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from paretune.strategies.errors import Unsupported

__all__ = ["directions", "leading_tensor", "refuse_class", "spatial_ratio", "temporal_ratio"]

_SHAPED_LIKE_IMAGES = {"image", "mask"}
_FRAMES_IN_BATCH = {"num_frames"}
_SPATIAL = (
    "spatial_compression_ratio",
    "spatial_scale_factor",
    "scale_factor_spatial",
    "spatial_ratio",
    "scale_factor",
)
_TEMPORAL = ("temporal_compression_ratio", "scale_factor_temporal", "time_compression_ratio", "temporal_ratio")


def directions(model: nn.Module) -> tuple[str, ...]:
    """The entries of ``model`` that can be cut up: ``decode`` and ``encode``, those it has."""
    return tuple(name for name in ("decode", "encode") if callable(getattr(model, name, None)))


def refuse_class(model: nn.Module, *, strategy: str, flag: str) -> None:
    """Raise ``Unsupported`` with the class's name when ``model`` cannot be cut up.

    It must have ``decode`` or ``encode``. A class of the diffusers library declares the ability in ``flag``
    (``use_slicing``, ``use_tiling``); one that does not, cannot. A ``decode`` that takes a second image-shaped input,
    or that finds the frames of one video in the batch, cannot either.
    """
    name = type(model).__name__
    if not directions(model):
        raise Unsupported(f"{strategy}: {name} has neither decode nor encode. Choose an autoencoder.")
    if hasattr(model, f"enable_{flag.removeprefix('use_')}") and not hasattr(model, flag):
        raise Unsupported(f"{strategy}: {name} does not support it (its library declares no {flag}). Remove it.")
    if rebound := [way for way in directions(model) if way in vars(model)]:
        raise Unsupported(f"{strategy}: {rebound[0]} of this {name} was rebound by other code. Take that back first.")
    taken = {p for way in directions(model) for p in inspect.signature(getattr(model, way)).parameters}
    if shaped := taken & _SHAPED_LIKE_IMAGES:
        raise Unsupported(f"{strategy}: {name} also takes {', '.join(sorted(shaped))}, which is not cut up. Remove it.")
    if taken & _FRAMES_IN_BATCH:
        raise Unsupported(f"{strategy}: {name} keeps the frames of one video in the batch. Remove it.")


def leading_tensor(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[torch.Tensor, Sequence[Any], dict[str, Any]]:
    """Tell the first argument of a method (given by position or by name) from the others.

    Raises ``TypeError`` when it is missing.
    """
    if args:
        return args[0], args[1:], dict(kwargs)
    first = list(inspect.signature(function).parameters)[1]
    if first not in kwargs:
        raise TypeError(f"{function.__qualname__}() is missing its argument {first!r}.")
    return kwargs[first], (), {name: value for name, value in kwargs.items() if name != first}


def spatial_ratio(model: nn.Module) -> int | None:
    """Pixels per latent along height and width, from the attributes the library's autoencoders state, else ``None``."""
    stated = _stated(model, _SPATIAL)
    if stated is not None:
        return stated
    channels = getattr(getattr(model, "config", None), "block_out_channels", None)
    return 2 ** (len(channels) - 1) if channels else None


def temporal_ratio(model: nn.Module) -> int | None:
    """Frames per latent frame, ``None`` where the model does not state it."""
    stated = _stated(model, _TEMPORAL)
    if stated is not None:
        return stated
    halvings = getattr(model, "temperal_downsample", None)
    return 2 ** sum(bool(h) for h in halvings) if halvings else None


def _stated(model: nn.Module, names: tuple[str, ...]) -> int | None:
    for place in (vars(model), getattr(model, "config", None), type(model)):
        for name in names:
            value: Any = place.get(name) if isinstance(place, dict) else getattr(place, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
                return value
    return None
