"""Where a workload comes from: how to build it, and how it is called by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from paretune.harness.workloads.architecture import Architecture, Input
from paretune.harness.workloads.base import WorkloadError
from paretune.harness.workloads.request import Request

__all__ = ["ArchitectureSource", "Built", "Source"]


@dataclass(frozen=True, kw_only=True)
class Built:
    """What a source made.

    Attributes:
        model: a pipeline (called itself) or an `nn.Module`.
        method: the method of a module that is called.
        call: arguments by name, before the user's overrides.
        inputs: arguments to be made from a seed.
    """

    model: Any
    method: str = "forward"
    call: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Input] = field(default_factory=dict)


class Source(Protocol):
    """One way to get at a pipeline or module."""

    def describe(self) -> Mapping[str, Any]:
        """What is known before loading, JSON values only; `call` holds the default arguments."""
        ...

    def build(self) -> Built:
        """Load onto the host. Raises `WorkloadError`."""
        ...


@dataclass(frozen=True, kw_only=True)
class ArchitectureSource:
    """An architecture file with synthetic weights."""

    architecture: Architecture
    request: Request

    def describe(self) -> Mapping[str, Any]:
        """Class, dtype and where the configuration was published."""
        sizes = [(one.height, one.width) for one in self._inputs().values() if one.kind == "image"][:1]
        picture = dict(zip(("height", "width"), sizes[0])) if sizes else {}
        return {
            "source": "architecture",
            "published": self.architecture.source,
            "pipeline": self.architecture.pipeline,
            "dtype": self.request.dtype or self.architecture.dtype,
            "call": {**picture, **self.architecture.call},
        }

    def build(self) -> Built:
        """Assemble the library's own classes with random weights of `weights_seed`."""
        import torch

        from paretune.harness.workloads.assemble import assemble

        if self.request.loading:
            key = next(iter(self.request.loading))
            raise WorkloadError(
                f"workload.{key}: means nothing for an architecture file, which loads no checkpoint. Remove it."
            )
        dtype = getattr(torch, self.request.dtype) if self.request.dtype else None
        return Built(
            model=assemble(self.architecture, seed=self.request.weights_seed, dtype=dtype),
            method=self.architecture.method,
            call=self.architecture.call,
            inputs=self._inputs(),
        )

    def _inputs(self) -> dict[str, Input]:
        """The declared inputs; `height` and `width` of the request are those of a picture that comes in."""
        sizes = {key: self.request.call[key] for key in ("height", "width") if key in self.request.call}
        declared = self.architecture.inputs
        return {name: one.model_copy(update=sizes) if one.kind == "image" else one for name, one in declared.items()}
