"""Settings to try for every registered strategy: the default, and each other choice of each parameter by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from paretune.strategies import PlanError, Setting, Strategy, explain, registry
from paretune.strategies.mechanics.capabilities import surroundings
from paretune.strategies.notation import strategy_from_text

__all__ = ["SLOW", "every_setting"]

SLOW = {"compile", "quantize"}
"""Strategies that build code or need packages; the suite tries their defaults only."""


FIXED_BY_THE_INPUT = {"compute_dtype"}
"""Parameters that must agree with the caller's inputs, which are float32 here."""


CHEAPER = {"compile": {"backend": "eager"}}
"""Parameters in place of defaults that would cost minutes: the graphs are the same, the code for them is not made."""


FURTHER = (
    "block_residency(look_ahead=0)",
    "block_residency(num_resident_blocks=2,look_ahead=0)",
    "block_residency(resident_bytes=3KB,spread=prefix,look_ahead=0)",
    "group_offload(exclude=[blocks])",
    "group_offload(level=leaf_level,exclude=[blocks])",
)
"""Settings that are worth trying and that no single choice leads to."""


def every_setting() -> list[Strategy]:
    """All settings that the rules allow on a CPU, each once."""
    here = surroundings(torch.device("cpu"))
    found: dict[str, Strategy] = {}
    further = (strategy_from_text(text, registry()) for text in FURTHER)
    for strategies in (*map(_variants, registry().values()), further):
        for strategy in strategies:
            if not explain([Setting(strategy=strategy)], here):
                found.setdefault(str(strategy), strategy)
    return list(found.values())


def _variants(cls: type[Strategy]) -> Iterator[Strategy]:
    try:
        base = cls(**CHEAPER.get(cls.name, {}))
    except (TypeError, PlanError):
        return
    yield base
    if cls.name in SLOW:
        return
    for field in dataclasses.fields(cls):
        for choice in () if field.name in FIXED_BY_THE_INPUT else field.metadata.get("choices", ()):
            try:
                yield dataclasses.replace(base, **{field.name: choice})
            except PlanError:
                continue
