"""Measure everything the simulator asks of a card and its host, and write it as sheets."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from paretune.harness.calibration.attention import attention_rates
from paretune.harness.calibration.links import copy_overheads, disk_rates, host_rates, link_rates
from paretune.harness.calibration.overheads import overheads
from paretune.harness.calibration.products import bandwidth_bytes_per_s, best_product_rates
from paretune.harness.calibration.stopwatch import Stopwatch
from paretune.harness.environment import host_memory_limit_bytes
from paretune.harness.simulator.sheets import GpuSheet, HostSheet, load_gpu, load_host, sheet_labelled

__all__ = ["PLAIN_EFFICIENCY", "Calibration", "Sizes", "calibrate"]

Say = Callable[[str], None]

PLAIN_EFFICIENCY = 0.85
"""Share of the rate that the cost model takes for products without tensor cores."""

_SOURCE = "measured by paretune calibrate"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large the probes are; the defaults fit a card of 4 GiB and take about a minute on one."""

    products: tuple[int, ...] = (2048, 4096, 8192)
    memory_bytes: int = 512 << 20
    link_bytes: int = 256 << 20
    disk_bytes: int = 512 << 20
    attention: bool = True


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was measured: a card's sheet, its host's, and the attention backends' rates in operations per second.

    The sheet of a card has the rates too, and attention is simulated with them.
    """

    gpu: GpuSheet
    host: HostSheet
    attention_flops_per_s: Mapping[str, float] = field(default_factory=dict)

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write both sheets to ``folder``; ``sim:PATH`` and ``host=PATH`` read them."""
        folder.mkdir(parents=True, exist_ok=True)
        gpu, host = folder / f"{self.gpu.name}.yaml", folder / f"{self.host.name}.yaml"
        gpu.write_text(_text(self.gpu))
        host.write_text(_text(self.host))
        return gpu, host


def calibrate(
    device: torch.device | str, *, name: str | None = None, sizes: Sizes | None = None, say: Say = lambda text: None
) -> Calibration:
    """Measure ``device`` and its host. ``say`` is told each step.

    A card with a shipped sheet keeps that sheet's data-sheet rates, and the shares of them that were reached are what
    changes; any other card's rates are what was reached.
    """
    place, chosen = torch.device(device), sizes or Sizes()
    watch = Stopwatch.on(place)
    facts = _facts(place)
    base = sheet_labelled(str(facts["label"]))
    say("products")
    rates = best_product_rates(watch, chosen.products)
    say("memory")
    bandwidth = bandwidth_bytes_per_s(watch, chosen.memory_bytes)
    say("links")
    links = _links(watch, chosen)
    say("overheads")
    host = _host(watch, links, chosen)
    attention: Mapping[str, float] = {}
    if chosen.attention:
        say("attention")
        attention = attention_rates(watch, torch.bfloat16 if place.type != "cpu" else torch.float32)
    gpu = _gpu(base, facts, rates, bandwidth, links)
    if place.type != "cpu":  # measured in float32 there, which says nothing about half precision
        gpu = dataclasses.replace(gpu, attention_flops_per_s=dict(attention))
    own = name or f"{gpu.name}-calibrated"
    host = dataclasses.replace(host, name=f"host-{own}")
    return Calibration(gpu=dataclasses.replace(gpu, name=own), host=host, attention_flops_per_s=attention)


def _facts(device: torch.device) -> dict[str, Any]:
    if device.type == "cpu":
        return {"label": "cpu", "memory_bytes": host_memory_limit_bytes(), "multiprocessors": torch.get_num_threads()}
    api = torch.get_device_module(device.type)
    properties = api.get_device_properties(device)
    free, total = api.mem_get_info(device)
    outside = max(total - free - api.memory_reserved(device), 0)
    return {
        "label": properties.name,
        "memory_bytes": total,
        "multiprocessors": properties.multi_processor_count,
        "compute_capability": tuple(api.get_device_capability(device)),
        "context_bytes": outside,
    }


def _links(watch: Stopwatch, sizes: Sizes) -> dict[str, float]:
    if watch.device.type == "cpu":
        return {}
    return {**link_rates(watch, sizes.link_bytes), **copy_overheads(watch)}


def _host(watch: Stopwatch, links: Mapping[str, float], sizes: Sizes) -> HostSheet:
    with tempfile.TemporaryDirectory() as folder:
        disk = disk_rates(Path(folder), sizes.disk_bytes) if watch.device.type != "sim" else {}
    pinning = host_rates(watch, sizes.link_bytes) if watch.device.type != "cpu" else {}
    measured = {**overheads(watch), **pinning, **disk, **links}
    names = {f.name for f in dataclasses.fields(HostSheet)}
    figures = {name: value for name, value in measured.items() if name in names}
    said = dict.fromkeys(sorted(figures), _SOURCE)
    memory = host_memory_limit_bytes()
    return dataclasses.replace(load_host(), **figures, memory_bytes=memory, sources=said)  # type: ignore[arg-type]


def _gpu(
    base: GpuSheet | None,
    facts: Mapping[str, Any],
    rates: Mapping[str, float],
    bandwidth: float,
    links: Mapping[str, float],
) -> GpuSheet:
    start = base or dataclasses.replace(load_gpu("rtx-4090"), name=_slug(str(facts["label"])), l2_bytes=32 << 20)
    reached = rates.get("bfloat16") or rates["float32"]
    dense = start.dense_flops_per_s.get("bfloat16") if base else None
    efficiency = min(reached / dense, 1.0) if dense else start.product_efficiency
    moved = min(bandwidth / start.bandwidth_bytes_per_s, 1.0) if base else start.bandwidth_efficiency
    own_rates = {name: rate / (PLAIN_EFFICIENCY if name == "float32" else efficiency) for name, rate in rates.items()}
    figures: dict[str, Any] = {name: value for name, value in links.items() if name.startswith("pinned_")}
    known = {name: value for name, value in facts.items() if value}
    return dataclasses.replace(
        start,
        **known,
        **figures,
        dense_flops_per_s={**(start.dense_flops_per_s if base else {}), **own_rates},
        product_efficiency=efficiency,
        bandwidth_bytes_per_s=start.bandwidth_bytes_per_s if base else bandwidth / moved,
        bandwidth_efficiency=moved,
        sources={**(start.sources if base else {}), "rates, memory, link, context": _SOURCE},
    )


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "card"


def _text(sheet: GpuSheet | HostSheet) -> str:
    data = dataclasses.asdict(sheet)
    if "compute_capability" in data:
        data["compute_capability"] = list(data["compute_capability"])
    head = "# Measured by `paretune calibrate`; bytes, seconds, operations and bytes per second.\n"
    return head + yaml.safe_dump(data, sort_keys=False)
