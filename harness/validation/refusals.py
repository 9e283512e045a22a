"""Why a published row says nothing about a run that could be simulated: what was not stated, or is not of this program."""

from __future__ import annotations

from collections.abc import Callable

from paretune.harness.validation.rows import PublishedRow

__all__ = ["COARSE_S", "refusal"]

COARSE_S = 10.0
"""Seconds that were rounded to whole ones are compared from here on, where rounding is at most 5 %."""
_FOREIGN = ("cache", "parallel", "lora", "vae", "text_embeddings", "text_encoder_3", "freenoise", "chunking")


def refusal(row: PublishedRow) -> str | None:
    """The first reason against comparing a row; `None` when there is none."""
    if "quantization" in row.config:
        return f"quantised by {row.config['quantization']}: kernels and layouts of that library are not simulated"
    for key in _FOREIGN:
        if key in row.config:
            return f"{key}={row.config[key]} is no strategy of this program"
    return next((why for applies, why in _REASONS if applies(row)), None)


def _says(*words: str) -> Callable[[PublishedRow], bool]:
    return lambda row: any(word in f"{row.unit_note} {row.notes}".lower() for word in words)


def _is_time(row: PublishedRow) -> bool:
    return row.metric == "latency_s"


def _is_peak(row: PublishedRow) -> bool:
    return row.metric.startswith("peak")


def _has(key: str, *words: str) -> Callable[[PublishedRow], bool]:
    return lambda row: any(word in row.config.get(key, "").lower() for word in words)


_REASONS: tuple[tuple[Callable[[PublishedRow], bool], str], ...] = (
    (
        lambda row: "not stated" in row.size or row.size.strip() == "model default",
        "the size of the picture or video is not stated",
    ),
    (
        lambda row: _is_time(row) and any(word in row.steps for word in ("not stated", "see config")),
        "the number of steps is not stated",
    ),
    (
        lambda row: row.family == "t2" and "txt2img" not in row.pipeline,
        "the published loop is that of another pipeline than the one for text to image",
    ),
    (lambda row: row.family == "repo", "an engine with an offloader of its own, or a rounded claim"),
    (_has("fuse_qkv", "true"), "fused projections keep both copies of the weights; not a strategy here"),
    (
        lambda row: row.family == "ci" and "casting" in row.config and _is_peak(row),
        "the peak of that table is reached while loading",
    ),
    (
        lambda row: (
            row.metric == "peak_gb_unspecified" and "not stated" in row.unit_note and "fits" not in row.unit_note
        ),
        "neither unit nor kind of the peak is stated",
    ),
    (
        lambda row: _is_peak(row) and _says("memory kind not stated", "kind of peak not stated")(row),
        "the kind of the peak is not stated",
    ),
    (_says("whole process"), "a cold run with loading inside"),
    (lambda row: "cold" in row.unit_note and "first call" in row.unit_note, "a cold run with loading inside"),
    (
        lambda row: "1 s resolution" in row.unit_note and row.value < COARSE_S,
        "whole seconds are coarser than the error to be found",
    ),
    (
        lambda row: _is_time(row) and row.notes.strip() == "single run",
        "a single run, and whether a warm one is not stated",
    ),
    (_has("note", "before:"), "code as it was before the change that the source proposes"),
    (_says("claimed"), "a claim, without a table of measurements"),
    (_says("at that revision"), "code of an older revision, which formed its groups in another way"),
    (_has("offload", "assumed"), "the parameters of the offload were guessed by whoever collected the row"),
    (_says("safety checker"), "a safety checker was loaded, which the workload leaves out"),
    (
        lambda row: _is_time(row) and row.config.get("offload", "").startswith(("group(see gist)", "group+disk")),
        "the parameters of the group offload are not stated, and its time depends on them",
    ),
    (_has("compile", "nexfort"), "a closed compiler"),
    (
        lambda row: row.model.startswith("sdxl-vae") and "not stated" in row.dtype,
        "the dtype is not stated, and this autoencoder is often run in float32",
    ),
    (_has("attention", "vanilla"), "attention as it was before fused kernels, in code that no longer exists"),
    (_has("attention", "sage"), "attention routed by another library's own code"),
)
