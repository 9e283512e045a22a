"""Choose which layers may be kept in a smaller dtype: the union of all exclusions that caller and model declare."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch import nn

__all__ = ["CASTABLE", "Selection", "declared_exclusions", "declared_float32", "select"]

CASTABLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
"""Layers whose weights are most of a diffusion model and bear rounding; norms and embeddings are left alone."""


@dataclass(kw_only=True)
class Selection:
    """Layers chosen by name, why the others were not, and which exclusions matched nothing."""

    layers: dict[str, nn.Module] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    unmatched: tuple[str, ...] = ()


def declared_float32(model: nn.Module) -> tuple[str, ...]:
    """Patterns of layers that the model, or any model inside it, declares to need float32."""
    return _declared(model, _FLOAT32)


def declared_exclusions(model: nn.Module) -> tuple[str, ...]:
    """Patterns that the model, or any model inside it, declares for layers that must keep their precision.

    Diffusers and transformers declare them as ``_keep_in_fp32_modules`` (also ``_strict``) and
    ``_skip_layerwise_casting_patterns``.
    """
    return _declared(model, (*_FLOAT32, "_skip_layerwise_casting_patterns"))


_FLOAT32 = ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")


def _declared(model: nn.Module, lists: tuple[str, ...]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for module in model.modules():
        for name in lists:
            declared = getattr(module, name, None) or ()
            found |= dict.fromkeys([declared] if isinstance(declared, str) else declared)
    return tuple(found)


def select(
    model: nn.Module,
    *,
    patterns: Iterable[str],
    classes: Iterable[str],
    wanted: Iterable[str] = (),
    kinds: tuple[type[nn.Module], ...] = CASTABLE,
) -> Selection:
    """Walk the model and keep the castable layers that no pattern (searched in the full name) or class name excludes.

    An excluded module excludes all it contains. Adapter layers (LoRA) keep their precision, their base layers do not.
    A layer that shares a parameter with one that is not chosen is left alone: the other owner would read the small one.
    ``wanted`` are the exclusions the caller wrote himself; those that matched nothing are returned as ``unmatched``.
    """
    walk = _Walk(rules={p: re.compile(p) for p in patterns}, classes=set(classes), kinds=kinds)
    chosen = walk.chosen
    seen = set[nn.Module]()
    for name, module in walk.visit(model, ""):
        if module not in seen:
            seen.add(module)
            chosen.layers[name] = module
    _drop_ties(model, chosen)
    chosen.unmatched = tuple(w for w in wanted if w not in walk.hit)
    return chosen


@dataclass(kw_only=True)
class _Walk:
    """One walk over a model: the exclusions, which of them matched, and what was found."""

    rules: dict[str, re.Pattern[str]]
    classes: set[str]
    kinds: tuple[type[nn.Module], ...]
    hit: set[str] = field(default_factory=set)
    chosen: Selection = field(default_factory=Selection)

    def visit(self, module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
        reasons = {p for p, rule in self.rules.items() if rule.search(name)} if name else set[str]()
        reasons |= self.classes & {cls.__name__ for cls in type(module).__mro__}
        self.hit |= reasons
        if reasons:
            self.chosen.skipped["excluded"] += self._count(module)
        elif isinstance(module, self.kinds) and not _is_adapter(module):
            if _holds_floats(module):
                yield name, module
            else:
                self.chosen.skipped["not_floating"] += 1
        else:
            yield from self._visit_children(module, name)

    def _visit_children(self, module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
        base_only = _is_adapter(module)
        for child_name, child in module.named_children():
            if base_only and child_name != "base_layer":
                self.chosen.skipped["adapter"] += self._count(child)
            else:
                yield from self.visit(child, f"{name}.{child_name}" if name else child_name)

    def _count(self, module: nn.Module) -> int:
        return sum(isinstance(m, self.kinds) for m in module.modules())


def _is_adapter(module: nn.Module) -> bool:
    """PEFT's tuner layers wrap the layer they adapt as ``base_layer``."""
    return isinstance(getattr(module, "base_layer", None), nn.Module)


def _holds_floats(module: nn.Module) -> bool:
    """Whether all parameters are ordinary floating tensors; quantised ones are tensors made of other tensors."""
    own = list(module.parameters(recurse=False))
    return bool(own) and all(p.is_floating_point() and not hasattr(p, "__tensor_flatten__") for p in own)


def _drop_ties(model: nn.Module, chosen: Selection) -> None:
    cast = {id(layer) for layer in chosen.layers.values()}
    foreign = {id(p) for module in model.modules() if id(module) not in cast for p in module.parameters(recurse=False)}
    tied = [n for n, layer in chosen.layers.items() if any(id(p) in foreign for p in layer.parameters(recurse=False))]
    for name in tied:
        del chosen.layers[name]
        chosen.skipped["tied"] += 1
