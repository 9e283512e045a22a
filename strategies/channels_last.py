"""Store convolution weights with channels innermost, the order in which convolution kernels read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from paretune.strategies.base import ComponentStrategy, Facts, Role, Undo, tunable
from paretune.strategies.errors import Unsupported
from paretune.strategies.rules import Before, Excludes

if TYPE_CHECKING:
    import torch

__all__ = ["ChannelsLast"]

_FIRST = "weights are moved in the layout they are computed in"


@dataclass(frozen=True, kw_only=True)
class ChannelsLast(ComponentStrategy):
    """Give 4-dimensional weights ``torch.channels_last`` and, on demand, 5-dimensional ones ``channels_last_3d``.

    Convolutions then answer in that layout and the activations follow. On a GPU in half precision this saves the
    conversion, and its workspace, that every convolution in the other layout does. Values are the same; kernels for the
    other layout may round the last bits otherwise. Raises ``Unsupported`` where there is no weight to convert.
    """

    changes_output: ClassVar[bool] = True
    roles: ClassVar[tuple[Role, ...]] = ("denoiser", "vae")
    everywhere: ClassVar[bool] = True
    rules = (
        Before(other="layerwise_casting", because="the layout is that of the weights which are stored"),
        Before(other="group_offload", because=_FIRST),
        Before(other="block_residency", because=_FIRST),
        Before(other="compile", because="compiled code is made for one layout"),
        Excludes(other="channels_last", because="a weight has one layout"),
    )

    volumes: bool = tunable(default=False, choices=(False, True), help="also convert 5-dimensional (video) weights")

    def apply(self, model: torch.nn.Module, device: torch.device, undo: Undo) -> Facts:
        from paretune.strategies.mechanics.layout import FORMATS, restride

        formats = {rank: wanted for rank, wanted in FORMATS.items() if rank == 4 or self.volumes}
        ranks = {parameter.dim() for parameter in model.parameters()}
        if not ranks & set(formats):
            hint = " Set volumes=true for its 5-dimensional ones." if 5 in ranks else " Remove it."
            raise Unsupported(f"channels_last: {type(model).__name__} has no 4-dimensional weight.{hint}")
        return {"num_weights_converted": len(restride(model, formats, undo))}
