"""Hold the weights of linear layers in 8 or 4 bits with scales, and unpack each layer's while it computes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from paretune.strategies.base import ComponentStrategy, Facts, Undo, tunable
from paretune.strategies.errors import PlanError, Unsupported
from paretune.strategies.facade import present
from paretune.strategies.lazy import torch
from paretune.strategies.rules import Before, Excludes, Forbids

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from paretune.strategies.mechanics.selection import Selection

__all__ = ["Quantize"]

_FIRST = "the bytes that are placed or moved must be the small ones"
_TORCHAO = {"int8_weight_only", "int4_weight_only", "float8_weight_only"}
_BITSANDBYTES = {"nf4", "bnb_int8"}


@dataclass(frozen=True, kw_only=True)
class Quantize(ComponentStrategy):
    """Weight-only quantisation of linear layers, in the formats of torchao, bitsandbytes and GGUF.

    ``engine=plain`` unpacks with PyTorch's operators on any device, keeps codes and scales as ordinary parameters, and
    so combines with offloading. ``engine=torchao`` hands the layers to that library's tensors and kernels.
    ``engine=bitsandbytes`` does for ``nf4`` and ``bnb_int8``. Undo gives the unrounded weights back, which wait on the
    host. Layers whose rows do not divide into groups, adapters, and what the model declares to need float32 stay wide.

    A device that only predicts charges unpacking as one kernel, which is what the libraries have;
    ``engine=plain`` submits several on a real one.

    Raises ``Unsupported`` when the engine's package or card is missing, or no layer is left.
    """

    changes_output: ClassVar[bool] = True
    rules = (
        *(
            Before(other=placing, because=_FIRST)
            for placing in ("group_offload", "block_residency", "sequential_offload", "model_offload", "device_map")
        ),
        Before(other="compile", because="compiled code is made for the weights as they are stored"),
        Excludes(other="quantize", because="a weight is stored in one format"),
        Forbids(
            when=lambda s: s.engine == "torchao" and s.method not in _TORCHAO,
            because=f"torchao offers {', '.join(sorted(_TORCHAO))}. Choose one, or engine=plain",
        ),
        Forbids(
            when=lambda s: s.engine == "bitsandbytes" and s.method not in _BITSANDBYTES,
            because=f"bitsandbytes offers {', '.join(sorted(_BITSANDBYTES))}. Choose one, or engine=plain",
        ),
    )

    method: str = tunable(
        default="int8_weight_only",
        choices=(
            "int8_weight_only",
            "int4_weight_only",
            "float8_weight_only",
            "nf4",
            "bnb_int8",
            "gguf_q8_0",
            "gguf_q4_0",
            "gguf_q4_k",
        ),
        help="format of the weights",
    )
    engine: str = tunable(
        default="plain", choices=("plain", "torchao", "bitsandbytes"), free=True, help="who unpacks and multiplies"
    )
    skip_modules_pattern: str | tuple[str, ...] | None = tunable(
        default=None, free=True, help="regular expression, or several, searched in module names: these stay wide"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine not in ("plain", "torchao", "bitsandbytes"):
            raise PlanError(f"quantize.engine: {self.engine!r} is not one of plain, torchao, bitsandbytes.")
        if isinstance(self.skip_modules_pattern, list):
            object.__setattr__(self, "skip_modules_pattern", tuple(self.skip_modules_pattern))
        for pattern in self._patterns():
            try:
                re.compile(pattern)
            except (re.error, TypeError) as error:
                raise PlanError(
                    f"quantize.skip_modules_pattern: {pattern!r} is no regular expression: {error}."
                ) from error

    def apply(self, model: torch.nn.Module, device: torch.device, undo: Undo) -> Facts:
        from paretune.strategies.mechanics.quantized import num_bytes

        pack, chosen = self._packing(device, undo), self._choose(model)
        layers: dict[str, Any] = dict(chosen.layers)
        dtypes, before = {m: m.dtype for m in _with_dtype(model)}, num_bytes(layers)
        pack(layers)
        return self._finish(model, chosen, dtypes, before, undo)

    def load(
        self,
        model: torch.nn.Module,
        folder: str | Path,
        *,
        device: torch.device | str = "cpu",
        variant: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Facts:
        """Fill ``model`` (best built on meta) from a checkpoint in shards, each weight packed as it is read.

        Device and host hold the packed model and one wide tensor at most: the wide weights stay in the files, so this
        is for good. dtype: what floating tensors become, or compute in; as stored unless said.

        Raises ``Unsupported`` as ``apply`` does, and ``CheckpointError`` as ``load_sharded`` does.
        """
        from paretune.strategies.mechanics.checkpoint import load_sharded
        from paretune.strategies.mechanics.quantized import Taker

        place = torch.device(device)
        chosen = self._choose(model)
        layers: dict[str, Any] = dict(chosen.layers)
        taker = Taker(layers=layers, pack=self._packing(place, _for_good), device=place, dtype=dtype)
        load_sharded(model, folder, variant=variant, device=place, dtype=dtype, take=taker)
        dtypes = dict.fromkeys(_with_dtype(model), taker.computes_in)
        return self._finish(model, chosen, dtypes, taker.wide_bytes, _for_good)

    def _finish(
        self, model: nn.Module, chosen: Selection, dtypes: Mapping[nn.Module, Any], before: int, undo: Undo
    ) -> Facts:
        from paretune.strategies.mechanics.casting import guard
        from paretune.strategies.mechanics.quantized import num_bytes

        layers: dict[str, Any] = dict(chosen.layers)
        is_plain = all(hasattr(layer, "paretune_format") for layer in layers.values())
        if is_plain:
            guard(model, layers.values(), next(iter(layers.values())).weight_scales.dtype, undo)
        for module, dtype in dtypes.items():
            present(module, undo, dtype=dtype)
        return {
            "num_layers_quantized": len(layers),
            "num_layers_skipped": sum(chosen.skipped.values()),
            "skipped_because": dict(chosen.skipped),
            "wide_bytes": before,
            "packed_bytes": num_bytes(layers) if is_plain else None,
            "unmatched_exclusions": list(chosen.unmatched),
        }

    def _patterns(self) -> tuple[Any, ...]:
        own = self.skip_modules_pattern
        return (own,) if isinstance(own, str) else tuple(own or ())

    def _packing(self, device: torch.device, undo: Undo) -> Callable[[dict[str, nn.Linear]], None]:
        from paretune.strategies.mechanics.libraries import engine_of
        from paretune.strategies.mechanics.quantized import Packer

        has_data = device.type not in ("sim", "meta")
        if self.engine != "plain" and has_data:
            engine = engine_of(self.engine, device)
            return lambda layers: engine(layers, self.method, undo)
        if self.method == "gguf_q4_k" and has_data:
            raise Unsupported(
                "quantize: weights are not packed to gguf_q4_k here, only files hold them. Use gguf_q4_0."
            )
        return Packer(format_name=self.method, has_data=has_data, undo=undo).pack

    def _choose(self, model: nn.Module) -> Selection:
        from torch import nn

        from paretune.strategies.mechanics.packing_formats import FORMATS
        from paretune.strategies.mechanics.selection import declared_float32, select

        patterns = (*declared_float32(model), *self._patterns())
        chosen = select(model, patterns=patterns, classes=(), wanted=self._patterns(), kinds=(nn.Linear,))
        for name, layer in list(chosen.layers.items()):
            if not FORMATS[self.method].fits(layer.in_features):  # type: ignore[arg-type]
                del chosen.layers[name]
                chosen.skipped["not_divisible"] += 1
        if not chosen.layers:
            told = ", ".join(f"{count} {why}" for why, count in sorted(chosen.skipped.items()) if count) or "none found"
            raise Unsupported(f"quantize: {type(model).__name__} has no linear layer to quantise ({told}).")
        return chosen


def _with_dtype(model: nn.Module) -> list[Any]:
    """Modules that say what they compute in; packed parameters would make them say something else."""
    return [module for module in model.modules() if hasattr(type(module), "dtype")]


def _for_good(inverse: Callable[[], object]) -> None:
    """Forget how to undo a change, and with it the wide weights that undoing would need."""
