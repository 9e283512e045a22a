"""Route one component's attention through a named backend of the catalogue, or the best one for each shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from paretune.attention.call import outside_capabilities
from paretune.attention.catalog import catalog
from paretune.strategies.base import ComponentStrategy, Facts, Role, Undo, tunable
from paretune.strategies.errors import Unsupported
from paretune.strategies.rules import Rule, Surroundings

if TYPE_CHECKING:
    import torch

    from paretune.strategies.plan import Setting

__all__ = ["AttentionBackend"]


@dataclass(frozen=True, kw_only=True)
class _RunsHere:
    """The backend's own requirements, as far as they are known before anything runs."""

    def broken(self, own: Setting, others: Sequence[Setting], where: Surroundings) -> Iterator[str]:
        name = own.strategy.parameters()["backend"]
        if name not in catalog() or where.device_type is None:
            return
        entry = catalog()[name]
        family = "cuda" if where.device_type == "sim" else where.device_type
        # AMD's devices call themselves cuda; only the device itself can tell, so apply() decides about them.
        devices = {"cuda" if device == "rocm" else device for device in entry.devices}
        if "any" not in devices and family not in devices:
            yield f"{own}: {name} runs on {', '.join(entry.devices)}, not on {where.device_type}. Choose another."
            return
        if where.compute_capability is not None:
            sentence = outside_capabilities(entry.limits_for(family), where.compute_capability)
            if sentence:
                yield f"{own}: {name} {sentence} Choose another backend."
        if where.packages is not None and where.device_type != "sim":
            installed = {distribution for distribution, _ in where.packages}
            for package in entry.packages:
                if package.distribution not in installed:
                    yield f"{own}: package '{package.distribution}' is not installed. {package.install}."


@dataclass(frozen=True, kw_only=True)
class AttentionBackend(ComponentStrategy):
    """Every attention call of the component, in processors and in plain code, goes through ``backend``.

    backend: a name of ``paretune.attention.catalog()``, or "auto" for the fastest that is not lossy, shape by shape.
    The facts name the layers reached and those that compute attention in another way.
    """

    backend: str = tunable(default="native", choices=("auto", *catalog()), help="name in the attention catalogue")

    roles: ClassVar[tuple[Role, ...]] = ("denoiser", "vae", "text_encoder", "other")
    changes_output: ClassVar[bool] = True
    rules: ClassVar[tuple[Rule, ...]] = (_RunsHere(),)

    @property
    def is_lossy(self) -> bool:
        """Everything but PyTorch's own choice may change the last bits; quantised backends change more."""
        return self.backend == "auto" or catalog()[self.backend].exactness != "bit_equal"

    def apply(self, model: torch.nn.Module, device: torch.device, undo: Undo) -> Facts:
        """Route ``model``; the inverse restores every class and processor. Raises ``Unsupported`` with the reason."""
        from paretune.attention import BackendRefused, BackendUnavailable, route

        try:
            routed = route(model, self.backend, device=device)
        except (BackendRefused, BackendUnavailable) as error:
            raise Unsupported(f"{self}: {error}") from error
        undo(routed.reset)
        return {"backend": self.backend, "layers": list(routed.layers), "missed": dict(routed.missed)}
