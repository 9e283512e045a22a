"""See a module or a pipeline as named components in the order they run, with the role each one plays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paretune.strategies.errors import PlanError
from paretune.strategies.lazy import torch

if TYPE_CHECKING:
    from paretune.strategies.base import Role

__all__ = ["Parts", "role_of"]

_DENOISERS = ("transformer", "unet", "prior", "denoiser")
_ENCODERS = ("text_encoder", "image_encoder", "vision_encoder")


def role_of(name: str) -> Role:
    """The role a component's name says it plays, by diffusers' naming."""
    if name.startswith(_DENOISERS):
        return "denoiser"
    if name.startswith(_ENCODERS):
        return "text_encoder"
    if name.startswith(("vae", "vqvae", "movq", "audio_vae")):
        return "vae"
    return "other"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A pipeline's modules (or one module under the name ``model``) in the order they run.

    ``root`` is the object the user calls: the pipeline, or the module itself. ``undo_plan`` takes back the whole plan
    that is being applied.
    """

    root: Any
    modules: Mapping[str, torch.nn.Module]
    undo_plan: Callable[[], None] | None = None

    @classmethod
    def of(cls, model: Any) -> Parts:
        """Look at ``model``: an ``nn.Module``, or any object with a ``components`` mapping (diffusers' pipelines).

        Raises ``TypeError`` for anything else.
        """
        if isinstance(model, torch.nn.Module):
            return cls(root=model, modules={"model": model})
        components = getattr(model, "components", None)
        if not isinstance(components, Mapping):
            raise TypeError(f"{type(model).__name__} is neither an nn.Module nor a pipeline with `components`.")
        found = {name: part for name, part in components.items() if isinstance(part, torch.nn.Module)}
        if not found:
            raise TypeError(f"{type(model).__name__} has no component that is an nn.Module.")
        return cls(root=model, modules={name: found[name] for name in _run_order(model, found)})

    @property
    def is_module(self) -> bool:
        """Whether the user gave one module rather than a pipeline."""
        return isinstance(self.root, torch.nn.Module)

    def role(self, name: str) -> Role:
        """The role of a component; a plain module plays every role and counts as denoiser."""
        return "denoiser" if self.is_module else role_of(name)

    def with_roles(self, roles: tuple[Role, ...]) -> tuple[str, ...]:
        """Names of the components that play one of ``roles``; for a plain module always its only name."""
        if self.is_module:
            return tuple(self.modules)
        return tuple(name for name in self.modules if self.role(name) in roles)

    def named(self, name: str) -> torch.nn.Module:
        """The component of that name. Raises ``PlanError`` that lists the names there are."""
        if name not in self.modules:
            raise PlanError(f"component {name!r} does not exist. This model has: {', '.join(self.modules)}.")
        return self.modules[name]


def _run_order(pipeline: Any, found: Mapping[str, torch.nn.Module]) -> Iterator[str]:
    """Diffusers states the order in ``model_cpu_offload_seq`` ("text_encoder->unet->vae"); the rest keeps its place."""
    sequence = getattr(pipeline, "model_cpu_offload_seq", None) or ""
    stated = [name for name in sequence.split("->") if name in found]
    rest = [name for name in found if name not in stated]
    encoders = [name for name in rest if role_of(name) == "text_encoder"]
    yield from encoders
    yield from stated
    yield from (name for name in rest if name not in encoders)
