"""Turn an architecture into the real pipeline: the library's own classes with synthetic weights and tokenizers."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from paretune.harness.workloads.architecture import Architecture, ArchitectureError, Component
from paretune.harness.workloads.skeleton import without_weights
from paretune.harness.workloads.tokens import TokenizerSpec, synthetic_tokenizer
from paretune.harness.workloads.weights import materialise

if TYPE_CHECKING:
    import torch

__all__ = ["assemble", "assemble_skeletons", "num_parameters", "resolve_class"]


def assemble(architecture: Architecture, *, seed: int = 0, dtype: torch.dtype | None = None) -> Any:
    """The pipeline (or the single module) of `architecture` on the CPU, with weights from `seed`.

    Args:
        dtype: of every component, instead of the file's; None keeps the file's dtypes.

    Raises:
        ArchitectureError: a class does not exist or refuses its configuration; the text names the component.
    """
    import torch

    parts = assemble_skeletons(architecture, dtype=dtype)
    for index, (name, part) in enumerate(parts.items()):
        if isinstance(part, torch.nn.Module):
            materialise(part, dtype=dtype or _dtype_of(name, architecture), seed=seed + index)
    if architecture.pipeline is None:
        return parts["model"]
    pipeline = resolve_class(architecture.pipeline)(**parts, **architecture.options)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def assemble_skeletons(architecture: Architecture, *, dtype: torch.dtype | None = None) -> dict[str, Any]:
    """Every component; those that are modules have their parameters on the meta device still."""
    parts = {}
    with without_weights():
        for name, declared in architecture.components.items():
            with _default_dtype(dtype or _dtype_of(name, architecture), declared):
                parts[name] = _component(name, declared)
    return parts


def num_parameters(architecture: Architecture) -> dict[str, int]:
    """Parameters of each module, counted without computing or storing anything."""
    import torch

    counts = {}
    with without_weights(), torch.device("meta"):
        for name, declared in architecture.components.items():
            if declared is not None and _is_module_class(declared.class_name):
                counts[name] = sum(parameter.numel() for parameter in _component(name, declared).parameters())
    return counts


def _dtype_of(name: str, architecture: Architecture) -> torch.dtype:
    import torch

    declared = architecture.components[name]
    dtype: torch.dtype = getattr(torch, (declared and declared.dtype) or architecture.dtype)
    return dtype


@contextmanager
def _default_dtype(dtype: torch.dtype, declared: Component | None) -> Iterator[None]:
    """Models are constructed under their own dtype, as both libraries' `from_pretrained` do: buffers follow it."""
    import torch

    if declared is None or not _is_module_class(declared.class_name):
        yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _is_module_class(name: str | None) -> bool:
    import torch

    return name is not None and issubclass(resolve_class(name), torch.nn.Module)


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
