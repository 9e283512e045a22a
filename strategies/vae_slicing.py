"""Decode and encode the samples of a batch one by one, so that peak memory does not grow with the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from paretune.strategies.base import ComponentStrategy, Facts, Role, Undo
from paretune.strategies.rules import Excludes

if TYPE_CHECKING:
    import torch

__all__ = ["VaeSlicing"]


@dataclass(frozen=True, kw_only=True)
class VaeSlicing(ComponentStrategy):
    """Cut the batch of ``decode`` and ``encode`` into single samples (diffusers' VAE slicing).

    Each sample gets the same arithmetic as in the batch (a library may still pick another kernel for a batch of one,
    and round the last bits otherwise); a batch of one is not touched. With ``vae_tiling`` slicing is the outer of the
    two. Raises ``Unsupported`` with the class's name for autoencoders whose samples depend on each other, or that do
    not offer it.
    """

    roles: ClassVar[tuple[Role, ...]] = ("vae",)
    rules = (Excludes(other="vae_slicing", because="a batch can be cut up once"),)

    def apply(self, model: torch.nn.Module, device: torch.device, undo: Undo) -> Facts:
        from paretune.strategies.mechanics.codec import directions, refuse_class
        from paretune.strategies.mechanics.override import Specialised

        refuse_class(model, strategy=self.name, flag="use_slicing")
        original = type(model)
        ways = directions(model)
        Specialised(undo).apply(model, **{way: _one_by_one(getattr(original, way)) for way in ways})
        return {"sliced": list(ways)}


def _one_by_one(original: Any) -> Any:
    from paretune.strategies.mechanics.codec import leading_tensor
    from paretune.strategies.mechanics.slicer import sliced

    def cut(self: Any, *args: Any, **kwargs: Any) -> Any:
        batch, rest, named = leading_tensor(original, args, kwargs)
        return sliced(lambda *own, **given: original(self, *own, **given), batch, rest, named)

    return cut
