"""How close an output is to the reference output of the same seed: bit-equality, PSNR, cosine, errors, blank frames."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["compare", "structural_similarity"]


def compare(output: Mapping[str, torch.Tensor], reference: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Closeness of named tensors to the reference's; the worst tensor decides each figure.

    is_exact: every bit equal. is_finite: no NaN or infinity where the reference has none. is_blank: one flat value (a
    black picture) where the reference has more than one.
    psnr_db: 10 log10(range^2 / mean squared error) with the range of the reference; infinite when equal, minus
    infinity where an output is not finite.
    cosine, max_abs_error: as named. relative_l2: norm of the difference over the norm of the reference.

    Raises ``ValueError`` when names or shapes differ.
    """
    if output.keys() != reference.keys():
        raise ValueError(f"outputs differ in their tensors: {sorted(output)} against {sorted(reference)}")
    each = [_one(name, output[name], reference[name]) for name in reference]
    return {
        "is_exact": all(one["is_exact"] for one in each),
        "is_finite": all(one["is_finite"] for one in each),
        "is_blank": any(one["is_blank"] for one in each),
        "psnr_db": min(one["psnr_db"] for one in each),
        "cosine": min(one["cosine"] for one in each),
        "max_abs_error": max(one["max_abs_error"] for one in each),
        "relative_l2": max(one["relative_l2"] for one in each),
    }


def _one(name: str, output: torch.Tensor, reference: torch.Tensor) -> dict[str, Any]:
    if output.shape != reference.shape:
        raise ValueError(f"output {name!r} has shape {tuple(output.shape)}, the reference {tuple(reference.shape)}")
    ours, theirs = output.double().flatten(), reference.double().flatten()
    difference = ours - theirs
    exact = output.dtype == reference.dtype and torch.equal(output, reference)
    scale, error = float(theirs.norm()), float(difference.norm())
    return {
        "is_exact": exact,
        "is_finite": bool((ours.isfinite() | ~theirs.isfinite()).all()),
        "is_blank": _is_flat(ours) and not _is_flat(theirs),
        "psnr_db": _psnr_db(theirs, difference),
        "cosine": 1.0 if exact else float(torch.nn.functional.cosine_similarity(ours, theirs, dim=0)),
        "max_abs_error": float(difference.abs().max()) if difference.numel() else 0.0,
        "relative_l2": error / scale if scale else (0.0 if error == 0.0 else math.inf),
    }


def _is_flat(values: torch.Tensor) -> bool:
    return values.numel() > 0 and bool((values == values[0]).all())


def structural_similarity(output: torch.Tensor, reference: torch.Tensor) -> float:
    """SSIM (Wang et al., 2004) of pictures (..., channels, height, width), by scikit-image; 1 for equal ones.

    The range is the reference's; the window shrinks for pictures below 7 pixels. Raises ``ValueError`` when shapes
    differ or a side is below 3 pixels, ``ImportError`` that names the extra when scikit-image is missing.
    """
    try:
        from skimage.metrics import structural_similarity as ssim
    except ImportError as error:
        raise ImportError("SSIM needs scikit-image: pip install 'paretune[fidelity]'.") from error
    if output.shape != reference.shape or output.dim() < 3 or min(output.shape[-2:]) < 3:
        raise ValueError(f"no pictures of one size: {tuple(output.shape)} against {tuple(reference.shape)}")
    ours, theirs = (tensor.double().reshape(-1, *tensor.shape[-3:]) for tensor in (output, reference))
    span = float(theirs.max() - theirs.min()) or 1.0
    window = min(7, (min(output.shape[-2:]) - 1) // 2 * 2 + 1)
    each = [
        float(ssim(a.numpy(), b.numpy(), channel_axis=0, data_range=span, win_size=window))
        for a, b in zip(ours, theirs, strict=True)
    ]
    return min(each)


def _psnr_db(reference: torch.Tensor, difference: torch.Tensor) -> float:
    mean_square = float((difference * difference).mean()) if difference.numel() else 0.0
    if mean_square == 0.0:
        return math.inf
    if not math.isfinite(mean_square):
        return -math.inf
    span = float(reference.max() - reference.min()) or 1.0
    return 10.0 * math.log10(span * span / mean_square)
