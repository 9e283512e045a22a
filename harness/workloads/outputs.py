"""Turn whatever a pipeline or module returns into tensors, so that outputs can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from paretune.harness.workloads.base import WorkloadError

if TYPE_CHECKING:
    import torch

__all__ = ["as_tensors"]


def as_tensors(output: Any) -> Any:
    """A tensor, or a tuple of tensors, out of a tensor, array, picture, list of them, tuple, mapping or output object.

    Distributions (what an autoencoder's `encode` returns) give their parameters. Pictures and arrays keep their values
    (0..255 or 0..1); entries that are None or text are left out.

    Raises:
        WorkloadError: nothing in the output can be compared.
    """
    found = list(_tensors(output))
    if not found:
        raise WorkloadError(
            f"workload: the output ({type(output).__name__}) holds no tensor, array or picture. "
            "Return tensors, or set workload.output_type=pt."
        )
    return found[0] if len(found) == 1 else tuple(found)


def _tensors(value: Any) -> list[torch.Tensor]:
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, np.ndarray):
        return [torch.from_numpy(value)]
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    if isinstance(value, list | tuple):
        return _joined([tensor for item in value for tensor in _tensors(item)])
    if isinstance(getattr(value, "parameters", None), torch.Tensor):
        return [value.parameters]
    if hasattr(value, "getdata") and hasattr(value, "mode"):
        return [torch.from_numpy(np.asarray(value).copy())]
    return []


def _joined(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Frames or images of one shape become one tensor."""
    import torch

    shapes = {(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors}
    return [torch.stack(tensors)] if len(tensors) > 1 and len(shapes) == 1 else tensors
