"""The modules of a workload by name with their roles, and the family that decides which space suits it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.harness.workloads.architecture import load_architecture, shipped
from paretune.harness.workloads.base import WorkloadError
from paretune.harness.workloads.catalog import workload_named
from paretune.strategies.parts import role_of

__all__ = ["Components", "components_of"]

_NO_MODULES = ("Scheduler", "Tokenizer", "TokenizerFast", "Processor", "FeatureExtractor", "ImageProcessor")
_ORDER = ("text_encoder", "other", "denoiser", "vae")
_VIDEO = ("3D", "Video", "Wan", "LTX", "Mochi", "Allegro", "Cosmos", "CogVideo", "TemporalDecoder")


@dataclass(frozen=True, kw_only=True)
class Components:
    """Names, roles (in the order they run) and class names of a workload's modules.

    family: ``image-dit``, ``video-dit``, ``unet`` or ``module``: the default space that suits it.
    """

    roles: Mapping[str, str]
    classes: Mapping[str, str]

    @property
    def family(self) -> str:
        denoisers = [name for name, role in self.roles.items() if role == "denoiser"]
        if list(self.roles) == ["model"] or not denoisers:
            return "module"
        if any("unet" in self.classes[name].lower() for name in denoisers):
            return "unet"
        video = any(word in name for name in self.classes.values() for word in _VIDEO)
        return "video-dit" if video else "image-dit"


def components_of(workload: Mapping[str, Any]) -> Components:
    """Find the modules of a workload; architecture files and checkpoints are read, anything else loads in a child.

    Raises ``WorkloadError`` when it cannot be loaded.
    """
    workload_named(workload)
    name = str(workload["name"])
    if name in shipped() or name.endswith((".yaml", ".yml")):
        declared = load_architecture(name).components
        return _built({key: c.class_name for key, c in declared.items() if c is not None and c.class_name})
    index = Path(name) / "model_index.json"
    if index.is_file():
        listed = json.loads(index.read_text())
        pairs = {key: value for key, value in listed.items() if isinstance(value, list) and len(value) == 2}
        return _built({key: value[1] for key, value in pairs.items() if value[1]})
    return _built(_loaded_elsewhere(workload))


def _built(classes: Mapping[str, str]) -> Components:
    modules = {name: cls for name, cls in classes.items() if not cls.endswith(_NO_MODULES)}
    single = list(modules) == ["model"]
    roles = {name: "denoiser" if single else role_of(name) for name in modules}
    ranked = sorted(roles, key=lambda name: _ORDER.index(roles[name]))
    return Components(roles={name: roles[name] for name in ranked}, classes=modules)


_LOADER = """
import json, sys
from paretune.harness.workloads import workload_named
from paretune.harness.workloads.catalog import workload_named
from paretune.strategies.parts import Parts
parts = Parts.of(workload_named(json.loads(sys.argv[1])).load())
print("\\n" + json.dumps({name: type(module).__name__ for name, module in parts.modules.items()}))
"""


def _loaded_elsewhere(workload: Mapping[str, Any]) -> dict[str, str]:
    command = [sys.executable, "-c", _LOADER, json.dumps(dict(workload))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise WorkloadError(f"workload {workload['name']!r} cannot be loaded: {said[-1] if said else 'no message'}")
    found: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
