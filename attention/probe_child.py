"""The process in which a backend is tried; its answer is one file, replaced at the end, whatever the kernel prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from paretune.attention.catalog import Entry, entry
from paretune.attention.contract import attend, scale_of
from paretune.attention.errors import BackendRefused
from paretune.attention.kernels.request import Request
from paretune.attention.probing import Probe
from paretune.attention.reference import distance, exceeded, reference

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """``NAME DEVICE FILE``: try every type and feature that the entry claims and write a ``Probe`` to FILE."""
    name, device, target = arguments
    found = _tried(entry(name), device)
    path = Path(target)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(asdict(found)))
    partial.replace(path)


def _tried(chosen: Entry, device: str) -> Probe:
    limits = chosen.limits_for(torch.device(device).type)
    agreed, largest, repeats = [], 0.0, True
    for dtype in limits.dtypes:
        for options in _cases(chosen, device):
            try:
                error, complaint, same = _one(chosen, device, dtype, options)
            except BackendRefused:
                break
            except Exception as problem:
                return _no(chosen, device, f"{type(problem).__name__} in {dtype}: {problem}")
            if complaint:
                return _no(
                    chosen, device, f"disagrees with float64 math ({', '.join(options) or 'plain'}): {complaint}"
                )
            largest, repeats = max(largest, error), repeats and same
        else:
            agreed.append(dtype)
    if not agreed:
        return _no(chosen, device, "refuses every type it claims to take on this device.")
    return Probe(
        name=chosen.name,
        device=device,
        ok=True,
        dtypes=tuple(agreed),
        largest_error=largest,
        is_repeatable=repeats,
    )


def _no(chosen: Entry, device: str, reason: str) -> Probe:
    return Probe(name=chosen.name, device=device, ok=False, reason=reason)


def _cases(chosen: Entry, device: str) -> Iterator[tuple[str, ...]]:
    limits = chosen.limits_for(torch.device(device).type)
    yield ()
    if limits.causal != "none":
        yield ("causal",)
    if limits.mask != "none":
        yield ("mask",)
    yield ("gqa",)
    if limits.lse:
        yield ("lse",)


def _one(chosen: Entry, device: str, dtype: str, options: tuple[str, ...]) -> tuple[float, str, bool]:
    generator = torch.Generator().manual_seed(0)
    heads, key_heads = (4, 2) if "gqa" in options else (2, 2)

    def random(length: int, width: int) -> torch.Tensor:
        sample = torch.randn(2, length, width, 64, generator=generator)
        return sample.to(device=device, dtype=getattr(torch, dtype))

    query, key, value = random(160, heads), random(160, key_heads), random(160, key_heads)
    mask = None
    if "mask" in options:
        mask = torch.rand(2, 1, 1, 160, generator=generator).to(device) > 0.3
    request = Request(mask, "causal" in options, scale_of(query, None), "gqa" in options, "lse" in options)

    def output() -> torch.Tensor:
        result = attend(
            query,
            key,
            value,
            backend=chosen.name,
            mask=mask,
            causal=request.causal,
            enable_gqa=request.enable_gqa,
            return_lse=request.return_lse,
        )
        return result[0] if isinstance(result, tuple) else result

    first = output()
    found = distance(first, reference(query, key, value, request)[0])
    complaint = exceeded(chosen, found, dtype=dtype, on_gpu=query.device.type != "cpu")
    return found.largest, complaint, torch.equal(first, output())


if __name__ == "__main__":
    main(sys.argv[1:])
