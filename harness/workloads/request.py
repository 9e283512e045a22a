"""What the user asks of a workload: a name and overrides of one call, checked before anything is imported."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paretune.harness.workloads.base import WorkloadError

__all__ = ["Request", "read_request", "user_names"]

_CALL = {
    "prompt": "prompt",
    "negative_prompt": "negative_prompt",
    "height": "height",
    "width": "width",
    "num_frames": "num_frames",
    "steps": "num_inference_steps",
    "guidance_scale": "guidance_scale",
    "max_sequence_length": "max_sequence_length",
    "strength": "strength",
    "output_type": "output_type",
}
"""Overrides by name, and the argument of the pipeline's call that each one sets."""

_ALIASES = {"frames": "num_frames", "batch": "batch_size", "guidance": "guidance_scale", "num_inference_steps": "steps"}

_LOADING = ("revision", "variant", "subfolder", "trust_remote_code", "arguments", "inputs", "method")

_DTYPES = ("float32", "float16", "bfloat16")

_POSITIVE = ("batch_size", "height", "width", "num_frames", "steps", "max_sequence_length")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One workload as asked for.

    Attributes:
        name: shipped name, path of an architecture file or checkpoint, hub id, or `module:function`.
        call: arguments of the call that the user set, by the pipeline's own names.
        batch_size: prompts per call (a module: factor on its inputs' first dimension); None keeps the default.
        seed: of the noise and the inputs. `weights_seed`: of synthetic weights.
        dtype: of every component, None keeps the source's.
        loading: how to find it: revision, variant, subfolder, trust_remote_code, arguments, inputs, method.
    """

    name: str
    call: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int | None = None
    seed: int = 0
    weights_seed: int = 0
    dtype: str | None = None
    loading: Mapping[str, Any] = field(default_factory=dict)


def read_request(workload: str | Mapping[str, Any]) -> Request:
    """Check the name and every override of `workload`.

    Raises:
        WorkloadError: an unknown key (with the nearest one), a value of the wrong type or out of range.
    """
    values: dict[str, Any] = {"name": workload} if isinstance(workload, str) else dict(workload)
    values = {_ALIASES.get(key, key): value for key, value in values.items()}
    name = values.pop("name", None)
    if not isinstance(name, str) or not name:
        raise WorkloadError(
            "workload.name: missing. Name a workload; `paretune list workloads` shows the shipped ones."
        )
    _refuse_unknown(values)
    _check(values)
    further = dict(values.pop("call", None) or {})
    return Request(
        name=name,
        call={**{_CALL[key]: values[key] for key in _CALL if values.get(key) is not None}, **further},
        batch_size=values.get("batch_size"),
        seed=values.get("seed") or 0,
        weights_seed=values.get("weights_seed") or 0,
        dtype=values.get("dtype"),
        loading={key: values[key] for key in _LOADING if values.get(key) is not None},
    )


def _refuse_unknown(values: Mapping[str, Any]) -> None:
    known = (*_CALL, *_ALIASES, *_LOADING, "batch_size", "seed", "weights_seed", "dtype", "call")
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"Did you mean `{near[0]}`?" if near else f"Known keys: name, {', '.join(known)}."
            raise WorkloadError(f"workload.{key}: unknown key. {hint}")


def _check(values: Mapping[str, Any]) -> None:
    for key in _POSITIVE:
        value = values.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise WorkloadError(f"workload.{key}: {value!r} is not a positive whole number.")
    for key in ("seed", "weights_seed"):
        value = values.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise WorkloadError(f"workload.{key}: {value!r} is not a whole number from 0 upwards.")
    for key in ("call", "arguments", "inputs"):
        if values.get(key) is not None and not isinstance(values[key], Mapping):
            raise WorkloadError(f"workload.{key}: a mapping of names to values, not {type(values[key]).__name__}.")
    if values.get("dtype") not in (None, *_DTYPES):
        raise WorkloadError(f"workload.dtype: {values['dtype']!r} is not one of {', '.join(_DTYPES)}.")


def user_names(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call under the names users write (`steps`); what has no such name keeps its own."""
    names = {argument: key for key, argument in _CALL.items()}
    return {names.get(argument, argument): value for argument, value in arguments.items()}
