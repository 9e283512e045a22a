"""Truths for benchmarks of the search, and forecasts of them that are wrong: made up, or from simulated tables.

Made up: every plan of a shipped space gets seconds and bytes from a rough model of a card, and a forecast from the same model
with wrong coefficients and with whole effects missing. Nothing here is a result about any model or card.

Simulated: the truth is a table of the simulator's figures, the forecast that table with its effects perturbed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paretune.harness.bench._tables import SPACES, Row, read
from paretune.harness.components import components_of
from paretune.harness.planner import Plans, expand
from paretune.harness.search.encoding import Encoding
from paretune.harness.search.features import Matrix, counted
from paretune.harness.search.residual import Forecast
from paretune.harness.space import axes_of
from paretune.harness.spaces import preset
from paretune.harness.workloads.architecture import load_architecture
from paretune.strategies import Plan, Surroundings

__all__ = ["Landscape", "Ground", "ground", "landscape", "tabled", "tabled_landscape"]

_GIB = 2.0**30
_MEMORY_EFFECT = 0.01
"""Log standard deviation of one setting's effect on memory that the forecast misses; plans have four to ten settings."""
_CARD = Surroundings(
    device_type="cuda",
    capabilities=frozenset({"streams", "pinned_memory", "device_memory"}),
    compute_capability=(8, 9),
)


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A workload's plans and the bytes of its components, before any truth is drawn."""

    name: str
    encoding: Encoding
    plans: tuple[Plan, ...]
    rows: Matrix
    denoiser_bytes: float = 0.0
    encoder_bytes: float = 0.0
    decode_bytes: float = 0.0
    table: Mapping[str, Row] = field(default_factory=dict)

    def draw(self, seed: int) -> Landscape:
        """The truth and the forecast of one seed; a table's truth is the same for all seeds, but for what crashes."""
        return tabled_landscape(self, seed) if self.table else landscape(self, seed)


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """One truth and its forecast over a ground, one entry per plan; ``crashes`` says which plans never work."""

    latency_s: Matrix
    need_bytes: Matrix
    crashes: Matrix
    forecast: Mapping[str, Forecast]

    def caps(self, shares: Sequence[float]) -> list[float]:
        """Memory sizes that leave these shares of the plans that work."""
        return [float(size) for size in np.quantile(self.need_bytes[self.crashes == 0], shares)]


def ground(name: str, *, decode_gib: float) -> Ground:
    """The plans of a shipped workload under the shipped space of its family, with every fifth size of what can stay."""
    found = components_of({"name": name})
    axes = axes_of(_fewer_sizes(preset(found.family)), found.roles)
    plans = expand(axes, found.roles, _CARD)
    sizes = load_architecture(name).components
    bytes_of = {part: 2.0 * ((c.parameters if c else None) or 0) for part, c in sizes.items()}

    def total(role: str) -> float:
        return sum(bytes_of.get(part, 0.0) for part, its in found.roles.items() if its == role)

    return Ground(
        name=name,
        encoding=(encoding := Encoding(plans, found.roles)),
        plans=plans.feasible,
        rows=encoding.features.rows,
        denoiser_bytes=total("denoiser"),
        encoder_bytes=total("text_encoder"),
        decode_bytes=decode_gib * _GIB,
    )


def _fewer_sizes(space: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """The same space, still a product of its axes: samplers that draw parameters one by one meet no holes in it."""
    denoiser = dict(space["denoiser"])
    if "block_residency" in denoiser:
        denoiser["block_residency"] = {"resident_bytes": denoiser["block_residency"]["resident_bytes"][::5]}
    return {**space, "denoiser": denoiser}


def tabled(name: str) -> Ground:
    """The plans of a simulated table. Raises ``FileNotFoundError`` for a workload that has none."""
    table = {row.plan: row for row in read(name)}
    found = components_of({"name": name})
    plans = expand((), found.roles, _CARD, plans=table).feasible
    axes = axes_of(SPACES[name], found.roles)
    encoding = Encoding(Plans(feasible=plans, axes=axes), found.roles)
    return Ground(name=name, encoding=encoding, plans=plans, rows=encoding.features.rows, table=table)


def tabled_landscape(place: Ground, seed: int, *, error: float = 0.12) -> Landscape:
    """A table's truth and a forecast that is wrong about it.

    Every setting's effect on time is off by ``error`` and on memory by 1 % (log standard deviation), pairs of settings
    by 5 %, each plan by another 2 % and 1 %, memory is 3 % too low, and one setting has no effect on time at all.
    """
    rng = np.random.default_rng(seed)
    known = [place.table[str(plan)] for plan in place.plans]
    latency = np.array([row.latency_s or math.inf for row in known])
    need = np.array([float(row.need_bytes or math.inf) for row in known])
    off = place.rows @ rng.normal(0, error, place.rows.shape[1]) + _interactions(place.rows, rng)
    told_s = _without_one(place, latency, rng) * np.exp(off + rng.normal(0, 0.02, len(known)))
    off = place.rows @ rng.normal(0, _MEMORY_EFFECT, place.rows.shape[1])
    told_bytes = need * np.exp(off + rng.normal(-0.03, 0.01, len(known)))
    forecast = {
        str(plan): Forecast(latency_s=float(seconds), need_bytes=float(size))
        for plan, seconds, size in zip(place.plans, told_s, told_bytes)
        if math.isfinite(seconds) and math.isfinite(size)
    }
    crashes = np.maximum(_crashes(place.rows, rng), ~np.isfinite(latency))
    return Landscape(latency_s=latency, need_bytes=need, crashes=crashes, forecast=forecast)


def _without_one(place: Ground, latency: Matrix, rng: np.random.Generator) -> Matrix:
    """Seconds as if one setting, drawn by chance, changed none: those of the plan without it, where there is one."""
    index = {row.tobytes(): number for number, row in enumerate(place.rows)}
    column = int(rng.integers(place.rows.shape[1]))
    reduced = place.rows.copy()
    reduced[:, column] = 0
    return np.array([latency[index.get(row.tobytes(), number)] for number, row in enumerate(reduced)])


def landscape(place: Ground, seed: int, *, error: float = 0.12) -> Landscape:
    """Draw a truth and a forecast whose coefficients are off by ``error`` (log standard deviation).

    The truth has what the forecast does not know: effects of pairs of settings, of each setting on memory, and 2 % of
    time and 0.3 % of memory that belong to one plan alone; peaks repeat, so little of an error in memory is chance.
    """
    rng = np.random.default_rng(seed)
    true = _coefficients(rng, 0.25)
    wrong = {name: value * math.exp(rng.normal(0, error)) for name, value in true.items()}
    wrong["interplay"] = 0.0  # a whole effect that the forecast does not know
    latency = np.array([_seconds(place, plan, true) for plan in place.plans])
    need = np.array([_bytes(place, plan, true) for plan in place.plans])
    latency *= np.exp(_interactions(place.rows, rng) + rng.normal(0, 0.02, len(latency)))
    need *= np.exp(place.rows @ rng.normal(0, _MEMORY_EFFECT, place.rows.shape[1]) + rng.normal(0, 0.003, len(need)))
    forecast = {
        str(plan): Forecast(
            latency_s=_seconds(place, plan, wrong),
            need_bytes=_bytes(place, plan, wrong) * math.exp(rng.normal(-0.03, 0.01)),
        )
        for plan in place.plans
    }
    return Landscape(latency_s=latency, need_bytes=need, crashes=_crashes(place.rows, rng), forecast=forecast)


def _coefficients(rng: np.random.Generator, spread: float) -> dict[str, float]:
    middle = {
        "compute": 12.0,
        "link": 1.5,
        "pageable": 5.0,
        "leaf": 0.15,
        "cast": 0.08,
        "compile": 0.18,
        "cudnn": 0.05,
        "tile": 0.10,
        "layout": 0.02,
        "interplay": 0.15,
        "context": 0.4,
    }
    return {name: value * math.exp(rng.normal(0, spread)) for name, value in middle.items()}


def _told(plan: Plan) -> dict[str, Any]:
    return {f"{s.component or ''}:{s.strategy.name}": s.strategy for s in plan}


def _seconds(place: Ground, plan: Plan, c: Mapping[str, float]) -> float:
    """Compute and copies of the denoiser overlap when streamed; encoder and decoder come on top."""
    names = {s.strategy.name for s in plan}
    compute, copied = c["compute"], 0.0
    total = c["pageable"] * (place.denoiser_bytes + place.encoder_bytes) / (16 * _GIB)
    for setting in plan:
        strategy = setting.strategy
        is_denoiser = setting.component is not None and setting.component.startswith(("transformer", "unet"))
        if strategy.name == "model_offload":
            total *= 0.4 if getattr(strategy, "pin_memory", False) else 1.0
        elif strategy.name == "group_offload" and is_denoiser:
            copied = c["link"] * place.denoiser_bytes / _GIB
            compute *= 1 + (c["leaf"] if getattr(strategy, "level", "") == "leaf_level" else 0.05)
        elif strategy.name == "block_residency":
            kept = counted(getattr(strategy, "resident_bytes", 0)) or 0.0
            copied = c["link"] * max(0.0, place.denoiser_bytes - kept) / _GIB
    if "layerwise_casting" in names:
        copied, compute = copied / 2, compute * (1 + c["cast"])
    if "compile" in names:
        compute *= 1 - c["compile"] * (1 - c["interplay"] * (copied > 0))
    compute *= 1 - c["cudnn"] * ("attention_backend" in names)
    decode = 0.6 * (1 + c["tile"] * ("vae_tiling" in names)) * (1 - c["layout"] * ("channels_last" in names))
    return max(compute, copied) + 0.1 * min(compute, copied) + total * ("model_offload" in names) + decode


def _bytes(place: Ground, plan: Plan, c: Mapping[str, float]) -> float:
    told = _told(plan)
    names = {s.strategy.name for s in plan}
    kept, encoder = place.denoiser_bytes, place.encoder_bytes
    for key, strategy in told.items():
        is_encoder = key.startswith("text_encoder")
        if strategy.name == "block_residency":
            kept = min(kept, (counted(getattr(strategy, "resident_bytes", 0)) or 0.0) + 0.6 * _GIB)
        if strategy.name == "group_offload":
            left = (0.1 if getattr(strategy, "level", "") == "leaf_level" else 0.5) * _GIB
            kept, encoder = (kept, min(encoder, left)) if is_encoder else (min(kept, left), encoder)
    if "layerwise_casting" in names:
        kept *= 0.55
    decode = place.decode_bytes * (0.35 if "vae_tiling" in names else 1.0)
    steps = kept + 1.0 * _GIB
    peak = max(encoder, steps, decode) if "model_offload" in names else max(encoder + steps, encoder + kept + decode)
    return peak + c["context"] * _GIB


def _interactions(rows: Matrix, rng: np.random.Generator) -> Matrix:
    """Small effects of pairs of settings, unknown to the forecast."""
    size = rows.shape[1]
    pairs = np.triu(rng.normal(0, 0.05, (size, size)), 1) * (rng.random((size, size)) < 0.3)
    return np.asarray((rows @ pairs * rows).sum(axis=1))


def _crashes(rows: Matrix, rng: np.random.Generator) -> Matrix:
    """Plans that hold one of two unlucky pairs of settings; never more than a fifth of them, never the empty plan."""
    crashed = np.zeros(len(rows))
    for _ in range(2):
        one, other = rng.integers(rows.shape[1], size=2)
        hit = (rows[:, one] > 0) & (rows[:, other] > 0) if one != other else np.zeros(len(rows), dtype=bool)
        if hit.mean() < 0.1:
            crashed[hit] = 1
    return crashed
