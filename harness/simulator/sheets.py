"""Data sheets: what a simulated card and its host can do, read from `configs/gpus/*.yaml`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

__all__ = ["GpuSheet", "HostSheet", "gpu_names", "load_gpu", "load_host", "sheet_labelled", "sheets_folder"]

Sheet = TypeVar("Sheet")


@dataclass(frozen=True, kw_only=True)
class GpuSheet:
    """One card: bytes, rates in operations or bytes per second, and where each figure comes from."""

    name: str
    label: str
    memory_bytes: int
    """Memory the driver reports, not the number on the box."""
    compute_capability: tuple[int, int]
    multiprocessors: int
    dense_flops_per_s: dict[str, float]
    """Dense tensor-core products by dtype, float32 accumulation, no sparsity; `float32` is the plain (non-TF32) rate."""
    bandwidth_bytes_per_s: float
    l2_bytes: int
    pinned_h2d_bytes_per_s: float
    pinned_d2h_bytes_per_s: float
    peer_bytes_per_s: float
    context_bytes: int
    product_efficiency: float = 0.75
    """Share of the dense rate that large half-precision products reach."""
    bandwidth_efficiency: float = 0.85
    """Share of the memory bandwidth that elementwise kernels reach."""
    attention_flops_per_s: dict[str, float] = field(default_factory=dict)
    """What attention backends of the catalogue reached on this card in half precision, by name; none before calibration."""
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HostSheet:
    """The machine around the card: rates the card does not decide."""

    name: str
    memory_bytes: int
    pageable_h2d_bytes_per_s: float
    pageable_d2h_bytes_per_s: float
    """Copies into freshly allocated host memory: page faults included."""
    memcpy_bytes_per_s: float
    pin_bytes_per_s: float
    """Allocating pinned memory: locking pages costs time per byte."""
    disk_read_bytes_per_s: float
    disk_write_bytes_per_s: float
    eager_operator_s: float
    """Host time of one eager operator: Python, dispatcher and launch."""
    module_call_s: float
    hook_s: float
    event_call_s: float
    """Host time of recording an event or making a stream wait for one."""
    copy_call_s: float
    """Host time of one asynchronous copy call."""
    copy_latency_s: float
    """Fixed time of one copy on its engine."""
    kernel_s: float
    """Fixed time of one kernel on the device."""
    sources: dict[str, str] = field(default_factory=dict)


def sheets_folder() -> Path:
    """The folder of the shipped data sheets."""
    from importlib import resources

    return Path(str(resources.files("paretune.configs") / "gpus"))


def gpu_names() -> list[str]:
    """Names of all shipped cards, sorted."""
    return sorted(path.stem for path in sheets_folder().glob("*.yaml") if not path.stem.startswith("host-"))


def load_gpu(name: str) -> GpuSheet:
    """Read one card's sheet by name, or from a path that ends in `.yaml`; raises `ValueError` for an unknown name."""
    data = _read(name, known=gpu_names(), what="GPU")
    data["compute_capability"] = tuple(data["compute_capability"])
    return _build(GpuSheet, data, name)


def sheet_labelled(label: str) -> GpuSheet | None:
    """The shipped sheet whose label is the card's name; ``None`` if there is none.

    Case and the maker's name do not count, nor does a memory size that only one of the two names.
    """
    wanted, size = _words(label)
    for name in gpu_names():
        sheet = load_gpu(name)
        words, labelled_size = _words(sheet.label)
        if words == wanted and (labelled_size == size or not labelled_size or not size):
            return sheet
    return None


def _words(label: str) -> tuple[frozenset[str], frozenset[str]]:
    """The words of a card's name, and those of them that are memory sizes."""
    known = {"nvidia", "geforce", "tesla", "gpu", "simulated"}
    words = frozenset(re.findall(r"[a-z0-9]+", label.lower())) - known
    sizes = frozenset(word for word in words if re.fullmatch(r"\d+gb", word))
    return words - sizes, sizes


def load_host(name: str = "host-default") -> HostSheet:
    """Read one host profile by name or path; raises `ValueError` for an unknown name."""
    known = sorted(path.stem for path in sheets_folder().glob("host-*.yaml"))
    return _build(HostSheet, _read(name, known=known, what="host"), name)


def _read(name: str, *, known: list[str], what: str) -> dict[str, Any]:
    path = Path(name) if name.endswith(".yaml") else sheets_folder() / f"{name}.yaml"
    if not path.is_file():
        raise ValueError(
            f"unknown {what} {name!r}: no sheet {path.name}. Known: {', '.join(known)}; or give a .yaml path."
        )
    data = yaml.safe_load(path.read_text())
    if not isinstance(data, dict):
        raise ValueError(f"{path}: a data sheet is a mapping of names to figures")
    return data


def _build(kind: type[Sheet], data: dict[str, Any], name: str) -> Sheet:
    try:
        return kind(**data)
    except TypeError as error:
        raise ValueError(f"data sheet {name!r}: {error}") from None
