"""The fastest backend for one call on one device, exact unless lossy is allowed, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch

from paretune.attention.available import availability
from paretune.attention.call import Call, refusal
from paretune.attention.catalog import Entry, catalog
from paretune.attention.catalog.rates import share
from paretune.attention.contract import call_of
from paretune.attention.errors import BackendUnavailable
from paretune.attention.kernels.loading import Kernel, kernel_on, load
from paretune.attention.kernels.request import Request

__all__ = ["Automatic", "Choice", "choose"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The backend chosen for a call, and why; ``expected_share`` is of the card's dense half-precision rate."""

    backend: str
    because: str
    expected_share: float | None = None


def choose(call: Call, device: str | torch.device, *, allow_lossy: bool = False) -> Choice:
    """The backend with the highest published rate among those that are here and can compute ``call``.

    Without charts for the device, or for float32, PyTorch's own choice stands. Never one that keeps the scores, unless
    no other can compute the call.
    """
    able = [item for item in catalog().values() if availability(item.name, device) and refusal(item, call) is None]
    rated = [(rate, item) for item in able if (rate := _rate(item, call)) is not None]
    exact_only = [(rate, item) for rate, item in rated if allow_lossy or not item.is_lossy]
    if call.compute_capability is None or not exact_only:
        return Choice(backend="native", because=f"{call.device_type}: no published rates for this device or type")
    # Ties go to the earlier entry, PyTorch's own first.
    rate, best = max(exact_only, key=lambda pair: pair[0])
    capability = ".".join(map(str, call.compute_capability))
    why = f"{call.dtype}, head size {call.head_size}, mask {call.mask}, compute capability {capability}"
    return Choice(
        backend=best.name, because=f"{why}: highest published rate of {len(rated)} that can", expected_share=rate
    )


def _rate(item: Entry, call: Call) -> float | None:
    """None where the charts say nothing: no NVIDIA card, full precision, or scores kept in memory."""
    if call.compute_capability is None or call.dtype not in ("float16", "bfloat16") or item.cost.score_copies:
        return None
    family = item.cost.masked_family if call.mask != "none" and item.cost.masked_family else item.cost.family
    if family == "sdpa":
        family = "fa2" if call.mask == "none" else "efficient"
    found = share(family, compute_capability=call.compute_capability, head_size=call.head_size, sequence=call.keys)
    return found.value


class Automatic:
    """Chooses once for each shape; ``choices`` maps a call to its choice, for the record."""

    name = "auto"

    def __init__(self, device: torch.device, *, allow_lossy: bool = False) -> None:
        self.device = device
        self.allow_lossy = allow_lossy
        self.choices: dict[Call, Choice] = {}
        self._kernels: dict[str, Kernel | None] = {}
        # While a graph is made the decision is taken once, as a constant of that graph.
        self._constant: Callable[..., str] = _constant(lambda *v: self._decide(Call(**dict(zip(_FIELDS, v)))))
        self._entries = dict(catalog())

    def pick(
        self, tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor], request: Request
    ) -> tuple[Entry, Kernel | None]:
        """The best backend for this call; one that cannot be loaded after all leaves the call to PyTorch's choice."""
        call = call_of(*tensors, request)
        if torch.compiler.is_compiling():
            name = self._constant(*[getattr(call, field) for field in _FIELDS])
        else:
            name = self._decide(call)
        return self._entries[name], self._kernels[name]

    def _decide(self, call: Call) -> str:
        if call not in self.choices:
            found = choose(call, self.device, allow_lossy=self.allow_lossy)
            self.choices[call] = self._loadable(found, call.device_type)
        return self.choices[call].backend

    def _loadable(self, choice: Choice, device_type: str) -> Choice:
        """The choice, or PyTorch's own when the chosen library turns out not to load; the reason is kept."""
        try:
            self._kernels.setdefault(choice.backend, kernel_on(catalog()[choice.backend], device_type))
        except BackendUnavailable as problem:
            self._kernels.setdefault("native", load(catalog()["native"]))
            return Choice(backend="native", because=f"{choice.backend} could not be loaded: {problem}")
        return choice


_FIELDS = tuple(field.name for field in fields(Call))
_constant: Any = torch.compiler.assume_constant_result
