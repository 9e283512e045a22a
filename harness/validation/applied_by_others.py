"""Apply techniques as diffusers and accelerate implement them: what published rows measured, and our peers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Technique", "apply_technique", "technique_of"]

_GROUP = re.compile(r"group_(leaf|block(?P<blocks>\d+))(?P<options>[a-z_+]*)")
_IGNORED = ("note", "torch", "attention", "fuse_qkv")


@dataclass(frozen=True, kw_only=True)
class Technique:
    """What was switched on. offload: "", "model", "sequential", "leaf" or "block"; `components`: "all" or "denoiser"."""

    offload: str = ""
    num_blocks: int = 1
    use_stream: bool = False
    record_stream: bool = False
    low_cpu_mem_usage: bool = False
    to_disk: bool = False
    components: str = "all"
    casting: str = ""
    vae_slicing: bool = False
    vae_tiling: bool = False
    compile: bool = False
    channels_last: bool = False


def technique_of(config: Mapping[str, str], model: str) -> Technique | None:
    """Read a row's configuration; `None` for one that holds something else."""
    fields: dict[str, Any] = {}
    for key, text in config.items():
        found = _READERS[key](text) if key in _READERS else (None if key not in _IGNORED else {})
        if found is None:
            return None
        fields |= found
    if fields.get("offload") in ("leaf", "block") and "transformer" in model:
        fields["components"] = "denoiser"
    return Technique(**fields)


def _offload(text: str) -> dict[str, Any] | None:
    if text in ("model", "sequential"):
        return {"offload": text}
    if text.startswith(("group(see gist)", "group+disk")):
        is_disk = "disk" in text
        return {"offload": "leaf", "components": "denoiser", "to_disk": is_disk, "use_stream": is_disk}
    match = _GROUP.match(text)
    if match is None:
        return None
    options = match["options"]
    return {
        "offload": "block" if match["blocks"] else "leaf",
        "num_blocks": int(match["blocks"] or 1),
        "use_stream": "stream" in options.replace("record_stream", ""),
        "record_stream": "record_stream" in options,
        "low_cpu_mem_usage": "low_cpu_mem" in options,
        "to_disk": "disk" in options,
        "components": "denoiser" if "transformer only" in text else "all",
    }


def _casting(text: str) -> dict[str, Any] | None:
    match = re.match(r"fp8_(e4m3|e5m2)_layerwise", text)
    return {"casting": "float8_e4m3fn" if match[1] == "e4m3" else "float8_e5m2"} if match else None


_READERS: dict[str, Any] = {
    "offload": _offload,
    "casting": _casting,
    "slicing": lambda text: {"vae_slicing": True} if text == "vae" else None,
    "tiling": lambda text: {"vae_tiling": True} if text == "vae" else None,
    "compile": lambda text: {"compile": True} if "nexfort" not in text else None,
    "memory_format": lambda text: {"channels_last": True} if text == "channels_last" else None,
}


@contextmanager
def apply_technique(loaded: Any, technique: Technique, device: Any, folder: str) -> Iterator[None]:
    """Switch a technique on for a loaded pipeline or module; `folder` takes what goes to disk.

    Nothing is switched off again: the model is thrown away afterwards.
    """
    import torch

    from paretune.strategies.parts import Parts

    parts = Parts.of(loaded)
    denoisers = [parts.modules[name] for name in parts.with_roles(("denoiser",))]
    _shape(parts, denoisers, technique)
    if technique.offload == "model":
        loaded.enable_model_cpu_offload(device=device)
    elif technique.offload == "sequential":
        loaded.enable_sequential_cpu_offload(device=device)
    elif technique.offload:
        _group(parts, denoisers, technique, torch.device(device), folder)
    else:
        for module in parts.modules.values():
            module.to(device)
    yield


def _shape(parts: Any, denoisers: list[Any], technique: Technique) -> None:
    import torch

    vaes = [parts.modules[name] for name in parts.with_roles(("vae",))]
    if parts.is_module and hasattr(next(iter(parts.modules.values())), "decode"):
        vaes = list(parts.modules.values())
    for vae in vaes:
        if technique.vae_slicing:
            vae.enable_slicing()
        if technique.vae_tiling:
            vae.enable_tiling()
    for denoiser in denoisers:
        if technique.casting:
            storage = getattr(torch, technique.casting)
            denoiser.enable_layerwise_casting(storage_dtype=storage, compute_dtype=denoiser.dtype)
        if technique.channels_last:
            denoiser.to(memory_format=torch.channels_last)
        if technique.compile:
            denoiser.compile()


def _group(parts: Any, denoisers: list[Any], technique: Technique, device: Any, folder: str) -> None:
    from diffusers.hooks import apply_group_offloading

    for name, module in parts.modules.items():
        if technique.components == "denoiser" and not any(module is denoiser for denoiser in denoisers):
            module.to(device)
            continue
        is_block = technique.offload == "block"
        apply_group_offloading(
            module,
            onload_device=device,
            offload_type="block_level" if is_block else "leaf_level",
            num_blocks_per_group=technique.num_blocks if is_block else None,
            non_blocking=technique.use_stream,
            use_stream=technique.use_stream,
            record_stream=technique.record_stream,
            low_cpu_mem_usage=technique.low_cpu_mem_usage,
            offload_to_disk_path=f"{folder}/{name}" if technique.to_disk else None,
        )
