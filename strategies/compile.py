"""Compile a model with torch.compile: all of it, or each kind of repeated block once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from paretune.strategies.base import ComponentStrategy, Facts, Undo, tunable
from paretune.strategies.rules import Before, Excludes, Surroundings

if TYPE_CHECKING:
    import torch

    from paretune.strategies.plan import Setting

__all__ = ["Compile", "HooksInside"]

_INSIDE = "weights would move inside compiled code"
_BY_LAYER = {"sequential_offload"}
_BY_BLOCK = {"group_offload", "block_residency"}


@dataclass(frozen=True, kw_only=True)
class HooksInside:
    """Refuse weights that move inside a compiled region: it runs without the hooks that would bring them."""

    def broken(self, own: Setting, others: Sequence[Setting], where: Surroundings) -> Iterator[str]:
        scope = getattr(own.strategy, "scope", "regional")
        for setting in others:
            if None not in (own.component, setting.component) and own.component != setting.component:
                continue
            name, level = setting.strategy.name, getattr(setting.strategy, "level", "block_level")
            if name in _BY_LAYER or (name in _BY_BLOCK and level == "leaf_level"):
                yield f"{own} and {setting} cannot be combined: {_INSIDE}. Use block_level."
            elif name in _BY_BLOCK and scope == "whole":
                yield f"{own} and {setting} cannot be combined: {_INSIDE}. Use scope=regional."


@dataclass(frozen=True, kw_only=True)
class Compile(ComponentStrategy):
    """torch.compile on a component's ``forward``, blocks of one class sharing their code (``regional``).

    Offload by blocks and casting stay outside the compiled code: weights come, and are widened, block by block. The
    first call compiles; a record keeps that time apart. Results may round otherwise, as kernels are fused. On a device
    that only predicts nothing is compiled, and the prediction is that of compiled code.

    Raises ``Unsupported`` for a component with no repeated blocks (``regional``) or nothing that is called (``whole``).
    """

    changes_output: ClassVar[bool] = True
    rules = (
        HooksInside(),
        Excludes(other="compile", because="a module is compiled once"),
        *(
            Before(other=placing, because="hooks that bring weights go around compiled code")
            for placing in ("group_offload", "block_residency", "model_offload", "device_map")
        ),
    )

    scope: str = tunable(
        default="regional", choices=("regional", "whole"), help="repeated blocks, or the whole forward"
    )
    mode: str = tunable(
        default="default",
        choices=("default", "max-autotune-no-cudagraphs"),
        free=True,
        help="torch.compile's mode; modes with CUDA graphs need weights that stay where they are",
    )
    fullgraph: bool = tunable(default=False, choices=(False,), free=True, help="make a graph break an error")
    dynamic: bool | None = tunable(default=None, choices=(None,), free=True, help="compile for varying shapes")
    backend: str = tunable(default="inductor", choices=("inductor",), free=True, help="torch.compile's backend")

    def apply(self, model: torch.nn.Module, device: torch.device, undo: Undo) -> Facts:
        from paretune.strategies.mechanics import compiled

        modules = compiled.regions(model, self.scope)
        if device.type in ("sim", "meta"):
            compiled.mark(modules, undo)
            return {"num_regions": len(modules), "predicted": True}
        facts = compiled.CompileFacts(num_regions=len(modules), undo=undo)
        compiled.compile_forward(modules, self._options(), undo)
        return facts

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"fullgraph": self.fullgraph, "dynamic": self.dynamic, "backend": self.backend}
        return options if self.mode == "default" else {**options, "mode": self.mode}
