"""Whether a backend can run on a device with what is installed: yes, or the one reason why not and what to install."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from paretune.attention.call import outside_capabilities
from paretune.attention.catalog import Entry, Package, entry
from paretune.attention.errors import BackendUnavailable

if TYPE_CHECKING:
    import torch

    from paretune.attention.catalog.entry import Capability

__all__ = ["Availability", "availability", "compute_capability", "require"]

_TORCH_DEVICES = ("cpu", "cuda", "rocm", "xpu", "npu", "xla", "mps", "sim")


@dataclass(frozen=True, kw_only=True)
class Availability:
    """The answer for one backend on one device; a no has a reason and, if it helps, a command to install."""

    name: str
    device: str
    ok: bool
    reason: str = ""
    install: str = ""

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.ok:
            return "yes"
        return f"no: {self.reason}" + (f" Install: {self.install}" if self.install else "")


def availability(name: str, device: str | torch.device = "cuda") -> Availability:
    """Whether backend ``name`` can run on ``device`` here.

    A simulated device ("sim") has every package but keeps the limits of its card. Raises ``ValueError`` for an unknown
    name.
    """
    chosen = entry(name)
    place = str(device)
    kind = _platform(place)
    package = None if kind == "sim" else _missing(chosen)
    reason = (
        _device_reason(chosen, kind, place)
        or (_package_reason(package) if package else "")
        or _hub_reason(chosen, kind)
    )
    return Availability(
        name=name, device=place, ok=not reason, reason=reason, install=package.install if package and reason else ""
    )


def require(chosen: Entry, device: torch.device) -> None:
    """Raise ``BackendUnavailable`` with the reason unless the backend can run on this device; a yes is remembered."""
    if not _known_available(chosen.name, device.type, device.index):
        raise BackendUnavailable(f"{chosen.name}: {str(availability(chosen.name, device)).removeprefix('no: ')}")


_AVAILABLE: set[tuple[str, str, int | None]] = set()


def _known_available(name: str, kind: str, index: int | None) -> bool:
    key, place = (name, kind, index), kind if index is None else f"{kind}:{index}"
    if kind == "sim":  # The next simulation in this process may be another card.
        return bool(availability(name, place))
    if key not in _AVAILABLE and availability(name, place):
        _AVAILABLE.add(key)
    return key in _AVAILABLE


def compute_capability(kind: str, index: int | None = None) -> Capability | None:
    """NVIDIA's compute capability of a CUDA or simulated device, None for other devices."""
    if kind == "sim":
        return _asked(kind, index)
    return _cached(kind, index) if kind == "cuda" else None


def _asked(kind: str, index: int | None) -> Capability | None:
    import torch

    if kind == "cuda" and torch.version.hip:
        return None
    major, minor = torch.get_device_module(kind).get_device_capability(index)
    return major, minor


_cached = cache(_asked)


def _platform(place: str) -> str:
    import torch

    kind = place.partition(":")[0]
    return "rocm" if kind == "cuda" and torch.version.hip else kind


def _device_reason(chosen: Entry, kind: str, place: str) -> str:
    family = "cuda" if kind == "sim" else kind
    if "any" not in chosen.devices and family not in chosen.devices:
        return f"it runs on {', '.join(chosen.devices)}, not on {kind}."
    if not _present(kind):
        return f"there is no {kind} device here."
    index = place.partition(":")[2]
    capability = compute_capability(kind, int(index) if index.isdigit() else None) if kind in ("cuda", "sim") else None
    return outside_capabilities(chosen.limits_for(family), capability) if capability else ""


def _present(kind: str) -> bool:
    import torch

    if kind == "cpu":
        return True
    try:
        return bool(torch.get_device_module("cuda" if kind == "rocm" else kind).is_available())
    except (AttributeError, RuntimeError):
        return False


def _missing(chosen: Entry) -> Package | None:
    return next((package for package in chosen.packages if _package_reason(package)), None)


def _package_reason(package: Package) -> str:
    try:
        found = importlib.util.find_spec(package.module) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        return f"package '{package.distribution}' is not installed."
    have = _version(package)
    if package.minimum and have and _numbers(have) < _numbers(package.minimum):
        return f"package '{package.distribution}' is {have}, it needs {package.minimum} or newer."
    return ""


def _version(package: Package) -> str | None:
    for name in (package.distribution, package.module):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _numbers(version: str) -> tuple[int, ...]:
    from packaging.version import Version

    return Version(version).release


def _hub_reason(chosen: Entry, kind: str) -> str:
    if chosen.hub is None or kind == "sim":
        return ""
    from paretune.attention.trust import distrust

    return distrust(chosen.hub) or ""
