"""Load a pipeline or a single model from a diffusers checkpoint: a hub id or a folder, safetensors only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from paretune.harness.workloads.architecture import Input
from paretune.harness.workloads.base import WorkloadError
from paretune.harness.workloads.request import Request
from paretune.harness.workloads.sources import Built

if TYPE_CHECKING:
    import torch

__all__ = ["CheckpointSource"]

_INDEX = "model_index.json"
_PICKLES = (".bin", ".ckpt", ".pt", ".pth")


@dataclass(frozen=True, kw_only=True)
class CheckpointSource:
    """A checkpoint by hub id or folder: with `model_index.json` a pipeline, with `config.json` a model."""

    request: Request

    def describe(self) -> Mapping[str, Any]:
        """The pipeline's class as the folder's index says it; a hub id is not asked before it is loaded."""
        return {
            "source": "folder" if self._folder is not None else "hub",
            "pipeline": self._pipeline_class(),
            "dtype": self.request.dtype or "float32",
            "call": {},
        }

    def build(self) -> Built:
        """Load it.

        Raises:
            WorkloadError: not a checkpoint, weights that are not safetensors, code of its own that nobody asked to run,
                or whatever the library reports.
        """
        loading = self.request.loading
        if "arguments" in loading:
            raise WorkloadError("workload.arguments: only a function takes them. Remove the key.")
        if self._folder is not None:
            _refuse_unsafe(self._folder, trusts_code=bool(loading.get("trust_remote_code")))
        try:
            model = self._load()
        except (OSError, ValueError, ImportError) as error:
            raise WorkloadError(f"workload.name: {self.request.name!r} could not be loaded: {error}") from error
        return Built(
            model=model, method=loading.get("method", "forward"), inputs=_read_inputs(loading.get("inputs", {}))
        )

    @property
    def _folder(self) -> Path | None:
        path = Path(self.request.name)
        return path if path.is_dir() else None

    @property
    def _is_pipeline(self) -> bool:
        if self._folder is not None:
            return (self._folder / _INDEX).is_file() and "subfolder" not in self.request.loading
        return "subfolder" not in self.request.loading

    def _pipeline_class(self) -> str | None:
        if not self._is_pipeline:
            return None
        if self._folder is None:
            return "DiffusionPipeline"
        name = json.loads((self._folder / _INDEX).read_text(encoding="utf-8")).get("_class_name")
        return str(name[-1] if isinstance(name, list) else name)

    def _load(self) -> Any:
        from diffusers import AutoModel, DiffusionPipeline

        keys = ("revision", "variant", "trust_remote_code", *(() if self._is_pipeline else ("subfolder",)))
        options = {key: self.request.loading[key] for key in keys if key in self.request.loading}
        kind = DiffusionPipeline if self._is_pipeline else AutoModel
        model = kind.from_pretrained(self.request.name, dtype=self._dtype(), use_safetensors=True, **options)
        if self._is_pipeline:
            model.set_progress_bar_config(disable=True)
        return model

    def _dtype(self) -> torch.dtype:
        import torch

        dtype: torch.dtype = getattr(torch, self.request.dtype or "float32")
        return dtype


def _refuse_unsafe(folder: Path, *, trusts_code: bool) -> None:
    """Nothing is unpickled, and code that lies in the folder runs only when asked for."""
    if not any((folder / name).is_file() for name in (_INDEX, "config.json")):
        raise WorkloadError(
            f"workload.name: folder {str(folder)!r} has neither {_INDEX} nor config.json. Name a diffusers checkpoint."
        )
    for part in [folder, *(child for child in sorted(folder.iterdir()) if child.is_dir())]:
        weights = [file for file in part.iterdir() if file.suffix in _PICKLES]
        if weights and not any(file.suffix == ".safetensors" for file in part.iterdir()):
            raise WorkloadError(
                f"workload.name: {str(weights[0])!r} is a pickle, which can run code when it is read; only safetensors "
                "are loaded. Convert the checkpoint with save_pretrained(safe_serialization=True)."
            )
    code = _own_code(folder)
    if code and not trusts_code:
        raise WorkloadError(
            f"workload.name: the checkpoint brings code of its own ({code}), which is not run unless asked for. "
            "Read it, then set workload.trust_remote_code=true."
        )


def _own_code(folder: Path) -> str | None:
    """The first Python file of the folder that its index refers to."""
    index = folder / _INDEX
    if not index.is_file():
        return None
    entries = json.loads(index.read_text(encoding="utf-8"))
    for key, value in entries.items():
        if isinstance(value, list) and value and isinstance(value[0], str):
            place = folder if key == "_class_name" else folder / key
            if (place / f"{value[0]}.py").is_file():
                return str((place / f"{value[0]}.py").relative_to(folder))
    return None


def _read_inputs(declared: Mapping[str, Any]) -> dict[str, Input]:
    try:
        return {name: Input(**value) for name, value in declared.items()}
    except (ValidationError, TypeError) as error:
        raise WorkloadError(f"workload.inputs: {error}") from error
