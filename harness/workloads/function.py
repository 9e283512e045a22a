"""Let the user's own function make the pipeline or module: `package.module:function` or `path/to/file.py:function`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.harness.workloads.base import WorkloadError
from paretune.harness.workloads.request import Request
from paretune.harness.workloads.sources import Built

__all__ = ["FunctionSource"]


@dataclass(frozen=True, kw_only=True)
class FunctionSource:
    """A function of the user's.

    It returns a pipeline (an object with `components` that can be called), a pair of a pipeline or `nn.Module` and a
    mapping of the arguments of one call, or an object with the attributes `model` and `inputs`. Its folder comes first
    on the import path, so its own `attention.py` or `strategies.py` are the ones it imports.
    """

    request: Request

    def describe(self) -> Mapping[str, Any]:
        """The function's name; what it returns is not known before it runs."""
        return {"source": "function", "pipeline": "function", "dtype": self.request.dtype or "float32", "call": {}}

    def build(self) -> Built:
        """Import the module, call the function with `workload.arguments`. Raises `WorkloadError`."""
        unused = [key for key in self.request.loading if key not in ("arguments", "method")]
        if unused:
            raise WorkloadError(f"workload.{unused[0]}: means nothing for a function. Pass it in workload.arguments.")
        if self.request.dtype is not None:
            raise WorkloadError("workload.dtype: a function decides its own dtype. Pass it in workload.arguments.")
        function = _find(self.request.name)
        arguments = dict(self.request.loading.get("arguments", {}))
        try:
            inspect.signature(function).bind(**arguments)
        except TypeError as error:
            raise WorkloadError(f"workload.arguments: {self.request.name}: {error}.") from error
        return _understood(self.request.name, function(**arguments), self.request.loading.get("method", "forward"))


def _find(name: str) -> Callable[..., Any]:
    place, _, attribute = name.rpartition(":")
    folder, module_name = (Path(place).parent, Path(place).stem) if place.endswith(".py") else (Path.cwd(), place)
    folder = folder.resolve()
    if place.endswith(".py") and not Path(place).is_file():
        raise WorkloadError(f"workload.name: file {place!r} does not exist.")
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))
    module = _import(module_name, name)
    if place.endswith(".py") and Path(str(module.__file__)).resolve() != Path(place).resolve():
        raise WorkloadError(
            f"workload.name: a module {module_name!r} is loaded already, from {module.__file__}. Rename {place!r}."
        )
    function = getattr(module, attribute, None)
    if not callable(function):
        raise WorkloadError(f"workload.name: {place!r} has no function {attribute!r}.")
    return function  # type: ignore[no-any-return]


def _import(module_name: str, name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise WorkloadError(
                f"workload.name: {name!r}: no module {error.name!r} here ({Path.cwd()}) or on the import path."
            ) from error
        raise WorkloadError(
            f"workload.name: importing {module_name!r} needs {error.name!r}, which is not installed."
        ) from error


def _understood(name: str, returned: Any, method: str) -> Built:
    import torch

    if hasattr(returned, "model") and hasattr(returned, "inputs") and not isinstance(returned, torch.nn.Module):
        returned = (returned.model, returned.inputs)
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
        model, call = returned
    else:
        model, call = returned, {}
    is_module = isinstance(model, torch.nn.Module)
    if is_module and not call:
        raise WorkloadError(f"workload.name: {name} returns a module without inputs. Return (module, inputs).")
    if not is_module and not (callable(model) and hasattr(model, "components")):
        raise WorkloadError(
            f"workload.name: {name} returns a {type(model).__name__}. "
            "Return a pipeline, (pipeline, arguments) or (module, inputs)."
        )
    return Built(model=model, method=method, call=dict(call))
