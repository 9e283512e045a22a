"""Settings to try for every registered strategy: the default, and each other choice of each parameter by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from paretune.strategies import PlanError, Setting, Strategy, explain, registry
from paretune.strategies.mechanics.capabilities import surroundings

__all__ = ["SLOW", "every_setting"]

SLOW = {"compile", "quantize"}
"""Strategies that build code or need packages; the suite tries their defaults only."""


FIXED_BY_THE_INPUT = {"compute_dtype"}
"""Parameters that must agree with the caller's inputs, which are float32 here."""


CHEAPER = {"compile": {"backend": "eager"}}
"""Parameters in place of defaults that would cost minutes: the graphs are the same, the code for them is not made."""


def every_setting() -> list[Strategy]:
    """All settings that the rules allow on a CPU, each once."""
    here = surroundings(torch.device("cpu"))
    found: dict[str, Strategy] = {}
    for cls in registry().values():
        for strategy in _variants(cls):
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
