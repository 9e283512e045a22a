"""Say a plan in the words of diffusers: lines of code that do the same with the library alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paretune.strategies import Plan, Setting

__all__ = ["diffusers_lines"]

Lines = list[str]


def diffusers_lines(plan: Plan, components: Mapping[str, str]) -> Lines | None:
    """Lines that prepare ``pipe`` for ``device``, ``None`` when a setting has no counterpart in diffusers.

    Casting comes before placement, as diffusers asks for it; components that nothing places go to the device whole.
    """
    placing, before = Lines(), Lines()
    placed = set[str]()
    whole_pipeline = False
    for setting in plan:
        said = _said(setting)
        if said is None:
            return None
        if not setting.strategy.places_weights:
            before += said
            continue
        placing += said
        placed.add(setting.component or "")
        whole_pipeline |= setting.component is None
    if whole_pipeline:
        return [*before, *placing] if placed == {""} else None
    rest = [name for name in components if name not in placed]
    moves = ["pipe.to(device)"] if not placed else [f"pipe.{name}.to(device)" for name in rest]
    return [*before, *placing, *moves]


def _said(setting: Setting) -> Lines | None:
    say = _WORDS.get(setting.strategy.name)
    return say(setting, setting.strategy.parameters()) if say else None


def _model_offload(setting: Setting, told: Mapping[str, Any]) -> Lines | None:
    return None if told.get("pin_memory") else ["pipe.enable_model_cpu_offload(device=device)"]


def _sequential_offload(setting: Setting, told: Mapping[str, Any]) -> Lines | None:
    return ["pipe.enable_sequential_cpu_offload(device=device)"]


def _group_offload(setting: Setting, told: Mapping[str, Any]) -> Lines | None:
    if setting.component is None or told.get("exclude"):
        return None
    known = ("num_blocks_per_group", "use_stream", "record_stream", "non_blocking", "low_cpu_mem_usage")
    options = "".join(f", {name}={told[name]!r}" for name in known if name in told)
    path = f", offload_to_disk_path={told['offload_to_disk_path']!r}" if told.get("offload_to_disk_path") else ""
    return [
        "from diffusers.hooks import apply_group_offloading",
        f"apply_group_offloading(pipe.{setting.component}, onload_device=device, "
        f"offload_device=torch.device('cpu'), offload_type={told['level']!r}{options}{path})",
    ]


def _layerwise_casting(setting: Setting, told: Mapping[str, Any]) -> Lines | None:
    if any(told.get(name) for name in ("skip_modules_pattern", "skip_modules_classes")):
        return None
    own = f"pipe.{setting.component}.dtype"
    compute = f"torch.{told['compute_dtype']}" if told.get("compute_dtype") else own
    return [
        "from diffusers.hooks import apply_layerwise_casting",
        f"apply_layerwise_casting(pipe.{setting.component}, storage_dtype=torch.{told['storage_dtype']}, "
        f"compute_dtype={compute})",
    ]


def _vae_slicing(setting: Setting, told: Mapping[str, Any]) -> Lines | None:
    return [f"pipe.{setting.component}.enable_slicing()"]


def _channels_last(setting: Setting, told: Mapping[str, Any]) -> Lines | None:
    return [f"pipe.{setting.component}.to(memory_format=torch.channels_last)"]


def _attention_backend(setting: Setting, told: Mapping[str, Any]) -> Lines | None:
    if told["backend"] == "auto":
        return None
    return [f"pipe.{setting.component}.set_attention_backend({told['backend']!r})"]


_WORDS: Mapping[str, Callable[[Setting, Mapping[str, Any]], Lines | None]] = {
    "attention_backend": _attention_backend,
    "channels_last": _channels_last,
    "group_offload": _group_offload,
    "layerwise_casting": _layerwise_casting,
    "model_offload": _model_offload,
    "sequential_offload": _sequential_offload,
    "vae_slicing": _vae_slicing,
}
