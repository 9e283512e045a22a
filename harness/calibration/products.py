"""How fast the card multiplies matrices, by dtype, and how fast it moves its own memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from paretune.harness.calibration.stopwatch import Stopwatch

__all__ = ["bandwidth_bytes_per_s", "best_product_rates", "product_flops_per_s"]

_DTYPES = ("bfloat16", "float16", "float32", "float8_e4m3fn", "int8")


def best_product_rates(watch: Stopwatch, sizes: Sequence[int]) -> Mapping[str, float]:
    """The best rate over ``sizes`` of every dtype this device can multiply, operations per second; tfloat32 apart."""
    found: dict[str, float] = {}
    for name in _DTYPES:
        rates = [rate for size in sizes if (rate := product_flops_per_s(watch, size, name)) is not None]
        if rates:
            found[name] = max(rates)
    if watch.device.type in ("cuda", "sim"):
        with _tensor_float32():
            rate = product_flops_per_s(watch, max(sizes), "float32")
        found["tfloat32"] = rate if rate is not None else found["float32"]
    return found


def product_flops_per_s(watch: Stopwatch, size: int, dtype: str) -> float | None:
    """Rate of one square product of this size, ``None`` where the device cannot do it in this dtype."""
    work = _product(watch, size, dtype)
    try:
        seconds = watch.whole_s(work, times=4)
    except (RuntimeError, NotImplementedError, ValueError):
        return None
    return 2.0 * size**3 / seconds


def _product(watch: Stopwatch, size: int, dtype: str) -> Callable[[], object]:
    device = watch.device
    if dtype == "int8":
        whole = torch.ones(size, size, dtype=torch.int8, device=device)
        return lambda: torch._int_mm(whole, whole)
    if dtype == "float8_e4m3fn":
        one = torch.ones((), device=device)
        small = torch.ones(size, size, device=device).to(torch.float8_e4m3fn)
        return lambda: torch._scaled_mm(small, small.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    values = torch.ones(size, size, dtype=getattr(torch, dtype), device=device)
    return lambda: values @ values


class _tensor_float32:  # noqa: N801 - reads as a statement
    """Lets float32 products use TF32 inside the block and gives the setting back."""

    def __enter__(self) -> None:
        self._before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")

    def __exit__(self, *_: object) -> None:
        torch.set_float32_matmul_precision(self._before)


def bandwidth_bytes_per_s(watch: Stopwatch, num_bytes: int) -> float:
    """Bytes read plus bytes written per second while the device copies ``num_bytes`` in its own memory."""
    source = torch.ones(num_bytes, dtype=torch.uint8, device=watch.device)
    target = torch.empty_like(source)
    return 2.0 * num_bytes / watch.whole_s(lambda: target.copy_(source), times=4)
