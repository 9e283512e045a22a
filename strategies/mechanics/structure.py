"""Take the tensors out of an answer (tuple, mapping, distribution) and build the same kind of answer around others."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

__all__ = ["take_apart"]

Rebuild = Callable[[Sequence[torch.Tensor]], Any]


def take_apart(value: Any) -> tuple[list[torch.Tensor], Rebuild]:
    """The tensors in ``value``, and a function that builds the same kind of answer around as many other tensors.

    A distribution is known by its ``parameters`` tensor and is built anew from it. Raises ``TypeError`` for values
    whose kind is not known, because joining pieces of them would be a guess.
    """
    if isinstance(value, torch.Tensor):
        return [value], lambda tensors: tensors[0]
    if value is None or isinstance(value, bool | int | float | str):
        return [], lambda tensors: value
    if isinstance(value, Mapping):
        return _join(list(value.values()), lambda items: _like_mapping(value, items))
    if isinstance(value, list | tuple):
        return _join(list(value), lambda items: _like_sequence(value, items))
    if isinstance(getattr(value, "parameters", None), torch.Tensor):
        return [value.parameters], lambda tensors: _like_distribution(value, tensors[0])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        parts = [getattr(value, name) for name in names]
        return _join(parts, lambda items: dataclasses.replace(value, **dict(zip(names, items, strict=True))))
    raise TypeError(f"{type(value).__name__} is an answer whose pieces cannot be joined: no tensors are known in it.")


def _join(items: list[Any], build: Callable[[list[Any]], Any]) -> tuple[list[torch.Tensor], Rebuild]:
    parts = [take_apart(item) for item in items]

    def rebuild(tensors: Sequence[torch.Tensor]) -> Any:
        rest, built = list(tensors), []
        for own, make in parts:
            built.append(make(rest[: len(own)]))
            rest = rest[len(own) :]
        return build(built)

    return [tensor for own, _ in parts for tensor in own], rebuild


def _like_mapping(model: Mapping[str, Any], items: list[Any]) -> Any:
    return type(model)(**dict(zip(model, items, strict=True)))


def _like_sequence(model: list[Any] | tuple[Any, ...], items: list[Any]) -> Any:
    return type(model)(*items) if hasattr(model, "_fields") else type(model)(items)


def _like_distribution(model: Any, parameters: torch.Tensor) -> Any:
    if hasattr(model, "deterministic"):
        return type(model)(parameters, deterministic=model.deterministic)
    if set(vars(model)) == {"parameters"}:
        made = copy.copy(model)
        made.parameters = parameters
        return made
    return type(model)(parameters)
