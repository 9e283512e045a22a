"""Turn an architecture into the real pipeline: the library's own classes with synthetic weights and tokenizers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from paretune.harness.workloads.architecture import Architecture, ArchitectureError, Component
from paretune.harness.workloads.skeleton import without_weights
from paretune.harness.workloads.tokens import TokenizerSpec, synthetic_tokenizer
from paretune.harness.workloads.weights import materialise

if TYPE_CHECKING:
    import torch

__all__ = ["assemble", "assemble_skeletons", "resolve_class"]


def assemble(architecture: Architecture, *, seed: int = 0, dtype: torch.dtype | None = None) -> Any:
    """The pipeline (or the single module) of `architecture` on the CPU, with weights from `seed`.

    Args:
        dtype: of every component, instead of the file's; None keeps the file's dtypes.

    Raises:
        ArchitectureError: a class does not exist or refuses its configuration; the text names the component.
    """
    import torch

    parts = assemble_skeletons(architecture)
    for index, (name, part) in enumerate(parts.items()):
        if isinstance(part, torch.nn.Module):
            declared = architecture.components[name]
            chosen = dtype or getattr(torch, (declared and declared.dtype) or architecture.dtype)
            materialise(part, dtype=chosen, seed=seed + index)
    if architecture.pipeline is None:
        return parts["model"]
    pipeline = resolve_class(architecture.pipeline)(**parts, **architecture.options)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def assemble_skeletons(architecture: Architecture) -> dict[str, Any]:
    """Every component; those that are modules have their parameters on the meta device still."""
    with without_weights():
        return {name: _component(name, declared) for name, declared in architecture.components.items()}


def _component(name: str, declared: Component | None) -> Any:
    if declared is None:
        return None
    if declared.tokenizer is not None:
        return synthetic_tokenizer(TokenizerSpec(**declared.tokenizer.model_dump()))
    kind = resolve_class(str(declared.class_name))
    configuration = getattr(kind, "config_class", None)
    try:
        part = kind(**declared.config) if configuration is None else kind(configuration(**declared.config))
    except (TypeError, ValueError) as error:
        raise ArchitectureError(f"components.{name}: {kind.__name__} refuses its configuration: {error}") from error
    if configuration is not None and hasattr(part, "tie_weights"):
        part.tie_weights()
    return part


def resolve_class(name: str) -> Any:
    """A class by its name in diffusers or transformers, or by its dotted path.

    Raises:
        ArchitectureError: neither library has it, or the library is missing.
    """
    module, _, short = name.rpartition(".")
    for place in [module] if module else ["diffusers", "transformers"]:
        try:
            return getattr(importlib.import_module(place), short)
        except (ImportError, AttributeError):
            continue
    places = module or "diffusers or transformers"
    raise ArchitectureError(f"class {short!r} is not in {places}. Install the extra `diffusers` or correct the name.")
