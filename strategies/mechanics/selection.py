"""Choose which layers may be kept in a smaller dtype: union of every exclusion that the caller or the model declares."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch import nn

__all__ = ["CASTABLE", "Selection", "declared_exclusions", "select"]

CASTABLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
"""Layers whose weights are most of a diffusion model and bear rounding; norms and embeddings are left alone."""


@dataclass(kw_only=True)
class Selection:
    """Layers chosen by name, why the others were not, and which exclusions matched nothing."""

    layers: dict[str, nn.Module] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    unmatched: tuple[str, ...] = ()


def declared_exclusions(model: nn.Module) -> tuple[str, ...]:
    """Patterns that the model, or any model inside it, declares for layers that must keep their precision.

    Diffusers and transformers declare them as ``_keep_in_fp32_modules`` (also ``_strict``) and
    ``_skip_layerwise_casting_patterns``.
    """
    lists = ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict", "_skip_layerwise_casting_patterns")
    found: dict[str, None] = {}
    for module in model.modules():
        for name in lists:
            declared = getattr(module, name, None) or ()
            found |= dict.fromkeys([declared] if isinstance(declared, str) else declared)
    return tuple(found)


def select(
    model: nn.Module, *, patterns: Iterable[str], classes: Iterable[str], wanted: Iterable[str] = ()
) -> Selection:
    """Walk the model and keep the castable layers that no pattern (searched in the full name) or class name excludes.

    An excluded module excludes all it contains. Adapter layers (LoRA) keep their precision, their base layers do not.
    A layer that shares a parameter with one that is not castable is left alone: the other owner would read the cast one.
    ``wanted`` are the exclusions the caller wrote himself; those that matched nothing are returned as ``unmatched``.
    """
    rules = {p: re.compile(p) for p in patterns}
    names = set(classes)
    chosen, hit = Selection(), set[str]()
    for name, module in _walk(model, "", rules, names, hit, chosen):
        chosen.layers[name] = module
    _drop_ties(model, chosen)
    chosen.unmatched = tuple(w for w in wanted if w not in hit)
    return chosen


def _walk(
    module: nn.Module, name: str, rules: dict[str, re.Pattern[str]], classes: set[str], hit: set[str], chosen: Selection
) -> Iterator[tuple[str, nn.Module]]:
    reasons = {p for p, rule in rules.items() if rule.search(name)} if name else set[str]()
    reasons |= classes & {cls.__name__ for cls in type(module).__mro__}
    hit |= reasons
    if reasons:
        chosen.skipped["excluded"] += _count(module)
    elif isinstance(module, CASTABLE) and not _is_adapter(module):
        if _holds_floats(module):
            yield name, module
        else:
            chosen.skipped["not_floating"] += 1
    else:
        base_only = _is_adapter(module)
        for child_name, child in module.named_children():
            if base_only and child_name != "base_layer":
                chosen.skipped["adapter"] += _count(child)
            else:
                yield from _walk(child, f"{name}.{child_name}" if name else child_name, rules, classes, hit, chosen)


def _is_adapter(module: nn.Module) -> bool:
    """PEFT's tuner layers wrap the layer they adapt as ``base_layer``."""
    return isinstance(getattr(module, "base_layer", None), nn.Module)


def _count(module: nn.Module) -> int:
    return sum(isinstance(m, CASTABLE) for m in module.modules())


def _holds_floats(module: nn.Module) -> bool:
    """Whether all parameters are ordinary floating tensors; quantised ones are tensors made of other tensors."""
    own = list(module.parameters(recurse=False))
    return bool(own) and all(p.is_floating_point() and not hasattr(p, "__tensor_flatten__") for p in own)


def _drop_ties(model: nn.Module, chosen: Selection) -> None:
    cast = {id(layer) for layer in chosen.layers.values()}
    foreign = {
        id(p) for module in model.modules() if id(module) not in cast for p in module.parameters(recurse=False)
    }
    tied = [n for n, layer in chosen.layers.items() if any(id(p) in foreign for p in layer.parameters(recurse=False))]
    for name in tied:
        del chosen.layers[name]
        chosen.skipped["tied"] += 1
