"""A pipeline that is already loaded, as a workload for the simulator: the same architecture, without its weights."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from paretune.harness.components import Components
from paretune.harness.workloads.called import CalledWorkload
from paretune.harness.workloads.request import Request
from paretune.harness.workloads.sources import Built
from paretune.strategies.parts import Parts

__all__ = ["components_in", "fingerprint", "loaded_workload"]


def components_in(model: Any) -> Components:
    """Names, roles and classes of the modules of a loaded pipeline or module."""
    parts = Parts.of(model)
    return Components(
        roles={name: parts.role(name) for name in parts.modules},
        classes={name: type(module).__name__ for name, module in parts.modules.items()},
    )


def loaded_workload(model: Any, request: Request) -> CalledWorkload:
    """The workload that calls a copy of ``model`` inside a simulation; ``model`` itself is only looked at.

    ``request.name`` should come from ``fingerprint``, so that records of different models are told apart.
    """
    return CalledWorkload(_Shadow(original=model, dtype=_dtype(model)), request)


@dataclass(frozen=True, kw_only=True)
class _Shadow:
    """Builds the copy anew for every trial: weights become shapes, small buffers keep their values."""

    original: Any
    dtype: str

    def describe(self) -> Mapping[str, Any]:
        return {
            "source": "loaded",
            "pipeline": None if isinstance(self.original, torch.nn.Module) else type(self.original).__name__,
            "dtype": self.dtype,
            "fingerprint": fingerprint(self.original),
            "call": {} if isinstance(self.original, torch.nn.Module) else {"prompt": "a photograph"},
        }

    def build(self) -> Built:
        from paretune.harness.simulator.adopt import adopt_module

        with _disable_current_modes():  # a simulation may be on, and the original is no part of it
            shadow = _without_weights(self.original)
        for module in Parts.of(shadow).modules.values():
            adopt_module(module)
        return Built(model=shadow, call=dict(self.describe()["call"]))


def fingerprint(model: Any) -> str:
    """Identity of an architecture: names, shapes and dtypes of everything its modules hold."""
    digest = hashlib.sha256()
    for name, module in Parts.of(model).modules.items():
        for path, tensor in module.state_dict(keep_vars=True).items():
            digest.update(f"{name}.{path} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
    return digest.hexdigest()[:12]


def _without_weights(model: Any) -> Any:
    """A deep copy in which parameters are on the meta device and buffers on the host."""
    known: dict[int, Any] = {}
    for module in Parts.of(model).modules.values():
        for parameter in module.parameters():
            bare = torch.empty_like(parameter, device="meta")
            known[id(parameter)] = torch.nn.Parameter(bare, requires_grad=parameter.requires_grad)
        for buffer in module.buffers():
            known[id(buffer)] = buffer.detach().to("cpu", copy=True)
    return copy.deepcopy(model, known)


def _dtype(model: Any) -> str:
    """The floating dtype of the denoiser, or of the first component that has one."""
    modules = Parts.of(model).modules
    ranked = sorted(modules, key=lambda name: Parts.of(model).role(name) != "denoiser")
    for name in ranked:
        for parameter in modules[name].parameters():
            if parameter.is_floating_point():
                return str(parameter.dtype).removeprefix("torch.")
    return "float32"
