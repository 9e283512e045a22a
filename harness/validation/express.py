"""Turn a published row into something the simulator can run, or say in one sentence why that is not possible."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.harness.validation.applied_by_others import Technique, technique_of
from paretune.harness.validation.refusals import refusal
from paretune.harness.validation.rows import PublishedRow
from paretune.harness.workloads.architecture import load_architecture

__all__ = ["CannotExpress", "Case", "express"]


class CannotExpress(ValueError):
    """A row that cannot be simulated; the text is the reason."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One simulated run; rows that ask for the same run share it.

    `overrides` are (name, value) pairs of the workload, `inputs` (name, shape) pairs of a module's own arguments,
    `host` the profile of the machine around the card, empty for the default one.
    """

    workload: str
    overrides: tuple[tuple[str, Any], ...]
    inputs: tuple[tuple[str, tuple[int, ...]], ...] = ()
    host: str = ""
    gpu: str
    technique: Technique
    is_card_known: bool


_WORKLOADS = {
    "FLUX.1-dev": "flux.1-dev",
    "FLUX.1-schnell": "flux.1-schnell",
    "FLUX.1 transformer": "flux-transformer",
    "FLUX.1-dev transformer": "flux-transformer",
    "SDXL-base-1.0": "sdxl",
    "SDXL-base": "sdxl",
    "SD1.5": "sd1.5",
    "runwayml/stable-diffusion-v1-5": "sd1.5",
    "stable-diffusion-v1-4": "sd1.5",
    "CompVis/stable-diffusion-v1-4": "sd1.5",
    "SD3-medium": "sd3-medium",
    "SD3.5-large": "sd3.5-large",
    "PixArt-alpha XL-2-1024": "pixart-alpha",
    "PixArt-Sigma": "pixart-sigma",
    "Kolors": "kolors",
    "CogVideoX-5b": "cogvideox-5b",
    "CogVideoX-2b": "cogvideox-2b",
    "Z-Image-Turbo": "z-image-turbo",
    "Qwen-Image": "qwen-image",
    "LTX-Video": "ltx-video",
    "HunyuanVideo": "hunyuan-video",
    "Wan2.1-T2V-14B": "wan-2.1-14b",
    "Wan2.1-T2V-1.3B": "wan-2.1-1.3b",
}
_DENOISER_ONLY = {"flux.1-dev": "flux-transformer", "sdxl": "sdxl-unet", "wan-2.1-14b": "wan-2.1-14b-transformer"}
_VAES = {"sd-vae-ft-mse": "sd-vae", "sdxl-vae-fp16-fix": "sdxl-vae"}
_CARDS = (
    ("h200", "h200"), ("h100", "h100"), ("h800", "h100"), ("h20", "h20"), ("a100 40", "a100-40gb"),
    ("a100-pcie-40", "a100-pcie-40gb"),
    ("a100", "a100-80gb"), ("a800", "a100-80gb"), ("a10g", "a10g"), ("l40s", "l40s"), ("l20", "l20"), ("4090", "rtx-4090"),
    ("5090", "rtx-5090"), ("5080", "rtx-5080"), ("5070 ti", "rtx-5070-ti"), ("4080", "rtx-4080"),
    ("4070 ti super", "rtx-4070-ti-super"), ("4070", "rtx-4070"), ("4060 ti", "rtx-4060-ti-16gb"), ("4060", "rtx-4060"),
    ("3090", "rtx-3090"), ("3080 ti", "rtx-3080-ti"), ("3080", "rtx-3080"), ("3070", "rtx-3070"), ("3060 ti", "rtx-3060-ti"),
    ("3060", "rtx-3060-12gb"), ("2080 ti", "rtx-2080-ti"), ("a6000", "rtx-a6000"), ("6000 ada", "rtx-6000-ada"),
    ("v100", "v100"), ("t4", "t4"), ("l4", "l4"),
)  # fmt: skip
_HOSTS = (("ryzen 9800x3d", "host-desktop-ddr5"),)
ASSUMED_CARD = "a100-80gb"
"""For rows that do not state their card: allocated memory hardly depends on it, times are not compared."""
_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def express(row: PublishedRow) -> Case:
    """The run that should reproduce the row; raises `CannotExpress`."""
    if row.metric not in ("peak_allocated_gb", "peak_reserved_gb", "peak_gb_unspecified", "latency_s", "it_per_s"):
        raise CannotExpress(f"metric {row.metric} is not a peak or a time of a whole run")
    if (why := refusal(row)) is not None:
        raise CannotExpress(why)
    workload = _workload(row)
    gpu, is_known = _card(row)
    overrides = dict(_overrides(row, workload))
    inputs = _inputs_of(workload, overrides)
    technique = technique_of(row.config, row.model)
    if technique is None:
        raise CannotExpress(f"configuration {row.strategy!r} is not one that this simulator applies")
    return Case(
        workload=workload,
        overrides=tuple(sorted(overrides.items())),
        inputs=inputs,
        host=next((name for word, name in _HOSTS if word in row.gpu.lower()), ""),
        gpu=gpu,
        technique=technique,
        is_card_known=is_known,
    )


def _workload(row: PublishedRow) -> str:
    for start, name in _VAES.items():
        if row.model.startswith(start):
            return f"{name}-{'encode' if row.pipeline.endswith('.encode') else 'decode'}"
    if row.model.startswith("CogVideoX VAE"):
        return "cogvideox-vae-encode"
    if row.model.startswith("LTX-Video-0.9.7"):
        return "ltx-0.9.7-transformer"
    if row.model not in _WORKLOADS:
        raise CannotExpress(f"no architecture file for {row.model}")
    name = _WORKLOADS[row.model]
    if "denoiser only" in row.notes or "transformer forwar" in row.size:
        if name not in (*_DENOISER_ONLY, *_DENOISER_ONLY.values()):
            raise CannotExpress(f"no architecture file for the denoiser of {row.model} alone")
        return _DENOISER_ONLY.get(name, name)
    if "only transformer" in row.notes or "latents only" in row.notes or "output_type latent" in row.notes:
        raise CannotExpress("part of the pipeline was measured: components left out, or no decode")
    return name


def _card(row: PublishedRow) -> tuple[str, bool]:
    if {"amd", "laptop", "mobile"} & set(row.gpu.lower().split()):
        raise CannotExpress(f"no data sheet for {row.gpu}")
    text = f"{row.gpu} {row.notes}".lower() if "not stated" in row.gpu.lower() else row.gpu.lower()
    if "not stated" in row.gpu.lower() and "h100-class" not in row.gpu.lower():
        return ASSUMED_CARD, False
    for word, name in _CARDS:
        start = r"\b" if word[0].isalpha() else r"(?<!\d)"
        if re.search(rf"{start}{word}(?!\d)", text):
            return name, True
    if "not stated" in text:
        return ASSUMED_CARD, False
    raise CannotExpress(f"no data sheet for {row.gpu}")


def _overrides(row: PublishedRow, workload: str) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    if match := re.match(r"\s*(\d+)x(\d+)", row.size):
        first, second = int(match[1]), int(match[2])
        is_video = "frames" in row.size
        found["height"], found["width"] = (first, second) if first <= second or not is_video else (second, first)
    if match := re.search(r"(\d+) frames", row.size):
        found["num_frames"] = int(match[1])
    if row.batch.isdigit() and int(row.batch) > 1:
        found["batch_size"] = int(row.batch)
    if (match := re.match(r"(\d+)", row.steps)) and "forward" not in row.steps:
        found["steps"] = int(match[1])
    if workload.endswith(("-transformer", "-unet")):
        return {key: value for key, value in found.items() if key == "batch_size"}
    if workload.endswith(("-decode", "-encode")):
        found.pop("steps", None)
    dtype = _DTYPES.get(row.dtype.removesuffix("(default)").strip())
    if dtype is not None and dtype != load_architecture(workload).dtype:
        found["dtype"] = dtype
    return found


def _inputs_of(workload: str, overrides: dict[str, Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Size and batch of what an autoencoder works on as the shape of its argument, taken out of the overrides."""
    if not workload.endswith(("vae-decode", "vae-encode")) or "height" not in overrides:
        return ()
    batch, height, width = overrides.pop("batch_size", 1), overrides.pop("height"), overrides.pop("width")
    num_frames = overrides.pop("num_frames", None)
    if workload.endswith("encode"):
        return (("x", (batch, 3, *((num_frames,) if num_frames else ()), height, width)),)
    return (("z", (batch, 4, height // 8, width // 8)),)
