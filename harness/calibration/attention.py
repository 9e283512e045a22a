"""How fast each attention backend that can run here is, on shapes of image and video transformers."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from paretune.harness.calibration.stopwatch import Stopwatch
from paretune.harness.simulator.attention_cost import PROBES

__all__ = ["attention_rates"]


def attention_rates(
    watch: Stopwatch, dtype: torch.dtype, shapes: tuple[tuple[int, int, int, int], ...] = PROBES
) -> Mapping[str, float]:
    """The best rate of every available backend in operations per second (4 x batch x heads x S x S x head size)."""
    from paretune.attention import attend, availability, catalog

    found: dict[str, float] = {}
    for name in catalog():
        if not availability(name, watch.device):
            continue
        rates = []
        for shape in shapes:
            query = torch.ones(shape, dtype=dtype, device=watch.device)
            try:
                seconds = watch.whole_s(lambda q=query, n=name: attend(q, q, q, backend=n))  # type: ignore[misc]
            except (RuntimeError, ValueError, NotImplementedError):
                continue
            batch, length, heads, size = shape
            rates.append(4.0 * batch * heads * length * length * size / seconds)
        if rates:
            found[name] = max(rates)
    return found
