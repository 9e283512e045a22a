"""Keep weights in 8 bits and widen each layer's only while it computes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from paretune.strategies.base import ComponentStrategy, Facts, Undo, tunable
from paretune.strategies.errors import PlanError, Unsupported
from paretune.strategies.facade import present
from paretune.strategies.lazy import torch
from paretune.strategies.rules import Before, Excludes

if TYPE_CHECKING:
    from torch import nn

    from paretune.strategies.mechanics.casting import Cast
    from paretune.strategies.mechanics.selection import Selection

__all__ = ["LayerwiseCasting"]

_DEFAULT_SKIPS = ("norm", "embed", "modulation", "(?i:adaln)", "^proj_in$", "^proj_out$")
_FIRST = "the bytes that are placed or moved must be the small ones"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LayerwiseCasting(ComponentStrategy):
    """Store linear and convolution weights in float8, compute in the wider dtype (diffusers' layerwise casting).

    Exclusions add up: the defaults (normalisation, modulation, embeddings, first and last projection), what the model
    declares, and the two parameters. Undo gives the unrounded weights back; they wait on the host until then. Weights
    that were changed while cast keep the change. A combination with offloading moves 8-bit weights over the link.

    Raises ``Unsupported`` when a weight lies beyond the storage dtype's range, when nothing is left to cast, or when
    the weights are stored in 8 bits already and ``compute_dtype`` is not said.
    """

    changes_output: ClassVar[bool] = True
    rules = (
        Before(other="group_offload", because=_FIRST),
        Before(other="block_residency", because=_FIRST),
        Before(other="sequential_offload", because=_FIRST),
        Before(other="model_offload", because=_FIRST),
        Before(other="device_map", because=_FIRST),
        Before(other="compile", because="the compiled code must see the widening"),
        Excludes(other="layerwise_casting", because="a weight has one storage dtype"),
        Excludes(other="quantize", because="both decide how the same weights are stored"),
    )

    storage_dtype: str = tunable(
        default="float8_e4m3fn", choices=("float8_e4m3fn", "float8_e5m2"), help="dtype of weights at rest"
    )
    compute_dtype: str | None = tunable(
        default=None,
        choices=(None, "bfloat16", "float16", "float32"),
        help="dtype a layer computes in; null for the one its weights have before they are cast",
    )
    skip_modules_pattern: str | tuple[str, ...] | None = tunable(
        default=None, free=True, help="regular expression, or several, searched in module names: these keep their dtype"
    )
    skip_modules_classes: str | tuple[str, ...] | None = tunable(
        default=None, free=True, help="class name, or several, of modules that keep their dtype"
    )
    default_skips: bool = tunable(default=True, choices=(True,), free=True, help="skip norms, modulation, embeddings")
    non_blocking: bool = tunable(default=False, choices=(False,), free=True, help="widen with non_blocking copies")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("skip_modules_pattern", "skip_modules_classes"):
            object.__setattr__(self, name, _frozen(name, getattr(self, name)))
        for pattern in _listed(self.skip_modules_pattern):
            try:
                re.compile(pattern)
            except re.error as error:
                message = f"layerwise_casting.skip_modules_pattern: {pattern!r} is not a regular expression: {error}."
                raise PlanError(message) from error

    def apply(self, model: nn.Module, device: torch.device, undo: Undo) -> Facts:
        from paretune.strategies.mechanics import casting

        chosen = self._choose(model)
        cast = self._cast(model, chosen, has_data=device.type not in ("sim", "meta"))
        if cast.has_data:
            _refuse_out_of_range(chosen, cast.storage)
        dtypes = {m: m.dtype for m in model.modules() if hasattr(type(m), "dtype")}
        num_bytes = _num_bytes(chosen)
        targets = casting.store(chosen.layers.values(), cast, undo)
        num_readers = casting.widen_while_read(model, targets, cast, undo)
        casting.guard(model, targets, cast.storage, undo)
        for module in {**dtypes, model: None}:
            present(module, undo, dtype=cast.compute or dtypes.get(module) or _first_compute(targets))
        return self._facts(chosen, num_readers, num_bytes - _num_bytes(chosen), device)

    def _choose(self, model: nn.Module) -> Selection:
        from paretune.strategies.mechanics.selection import declared_exclusions, select

        own, classes = _listed(self.skip_modules_pattern), _listed(self.skip_modules_classes)
        defaults = _DEFAULT_SKIPS if self.default_skips else ()
        patterns = (*defaults, *declared_exclusions(model), *own)
        chosen = select(model, patterns=patterns, classes=classes, wanted=(*own, *classes))
        for wanted in chosen.unmatched:
            _log.warning("layerwise_casting: %r matches no module of %s.", wanted, type(model).__name__)
        return chosen

    def _cast(self, model: nn.Module, chosen: Selection, *, has_data: bool) -> Cast:
        from paretune.strategies.mechanics.casting import Cast

        name = type(model).__name__
        if hasattr(model, "paretune_storage_dtype"):
            raise Unsupported(f"layerwise_casting: {name} is cast already. Undo that plan first.")
        if not chosen.layers:
            skipped = ", ".join(f"{count} {why}" for why, count in sorted(chosen.skipped.items())) or "none found"
            raise Unsupported(f"layerwise_casting: {name} has no layer to cast ({skipped}). Skip fewer, or drop it.")
        small = [n for n, layer in chosen.layers.items() if any(p.element_size() == 1 for p in layer.parameters())]
        if small and self.compute_dtype is None:
            raise Unsupported(
                f"layerwise_casting: {name}.{small[0]} is stored in 8 bits already, so its compute dtype is unknown. "
                "Set compute_dtype."
            )
        compute = getattr(torch, self.compute_dtype) if self.compute_dtype else None
        storage = getattr(torch, self.storage_dtype)
        return Cast(storage=storage, compute=compute, non_blocking=self.non_blocking, has_data=has_data)

    def _facts(self, chosen: Selection, num_readers: int, saved_bytes: int, device: torch.device) -> dict[str, Any]:
        return {
            "num_layers_cast": len(chosen.layers),
            "num_layers_skipped": sum(chosen.skipped.values()),
            "skipped_because": dict(chosen.skipped),
            "num_readers": num_readers,
            "saved_bytes": saved_bytes,
            "unmatched_exclusions": list(chosen.unmatched),
            "range_checked": device.type not in ("sim", "meta"),
        }


def _frozen(name: str, value: Any) -> str | tuple[str, ...] | None:
    """A string is one pattern, never its letters. Raises ``PlanError`` for what is no string and no list of them."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        words = tuple(v.__name__ if isinstance(v, type) else v for v in value)
        if all(isinstance(word, str) for word in words):
            return words
    raise PlanError(f"layerwise_casting.{name}: {value!r} is neither a string nor a list of strings.")


def _listed(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value or ()


def _num_bytes(chosen: Selection) -> int:
    return sum(p.numel() * p.element_size() for layer in chosen.layers.values() for p in layer.parameters())


def _first_compute(targets: Any) -> Any:
    return next(iter(next(iter(targets.values())).values()))


def _refuse_out_of_range(chosen: Selection, storage: torch.dtype) -> None:
    from paretune.strategies.mechanics.casting import count_out_of_range

    for name, layer in chosen.layers.items():
        for parameter_name, parameter in layer.named_parameters(recurse=False):
            if beyond := count_out_of_range(parameter, storage):
                raise Unsupported(
                    f"layerwise_casting: {beyond} of {parameter.numel()} values of {name}.{parameter_name} lie beyond "
                    f"{torch.finfo(storage).max:g}, the largest of {storage}. Add the layer to skip_modules_pattern"
                    + (", or use storage_dtype=float8_e5m2." if storage is torch.float8_e4m3fn else ".")
                )
