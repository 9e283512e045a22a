"""A tensor that may be read and computed with, but not written to: changing it would change nothing that stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

__all__ = ["ReadOnly"]


class ReadOnly(torch.Tensor):
    """What ``layer.weight`` gives while the weight is packed. Results of operators on it are ordinary tensors.

    Raises ``RuntimeError`` on operators in place, such as an adapter's merge: the packed weight would not follow.
    """

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        writes = (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE
        if writes and args and isinstance(args[0], cls):
            raise RuntimeError(
                f"{name}: this weight is packed by a plan and read as a copy, so a change would be lost. "
                "Undo the plan, change the weight, and apply the plan again."
            )
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        is_alias = func in (torch.Tensor.data.__get__, torch.Tensor.detach)  # type: ignore[attr-defined]
        return result.as_subclass(cls) if is_alias else result


_IN_PLACE = {"__set__", "__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__"}
