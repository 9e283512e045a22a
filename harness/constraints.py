"""What a record needs against what the budget allows: the fit as a sum of named terms, and constraints as numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paretune.harness.records import Kind, Outcome, Peaks, Record
from paretune.harness.spec import Budget

__all__ = ["Need", "Term", "constraint_names", "is_feasible", "need_against", "need_of", "violations"]

MIB = 2**20

_UNKNOWN_CONTEXT_BYTES = 512 * MIB
"""Context and libraries of a CUDA process where the driver's figure is not known: 0.3 to 0.6 GiB are usual."""

_KEPT_CACHE, _KEPT_CACHE_BYTES = 0.02, 128 * MIB
"""The part of an allocator's cache that is not given back when memory runs short, of live tensors and at least."""

_LEAST_MARGIN_BYTES = 256 * MIB
_MEASURED_MARGIN, _PREDICTED_MARGIN = 0.03, 0.05
_BEYOND = 1.05
"""A plan that ran out of memory needs at least this much more than it had, when nothing better is known."""


@dataclass(frozen=True, kw_only=True)
class Term:
    """One summand of what must fit, with the reason for its size."""

    name: str
    num_bytes: int
    because: str


@dataclass(frozen=True, kw_only=True)
class Need:
    """Device memory a plan needs, term by term. ``is_lower_bound``: it ran out, so it needs at least this."""

    terms: tuple[Term, ...]
    is_lower_bound: bool = False

    @property
    def total_bytes(self) -> int:
        return sum(term.num_bytes for term in self.terms)


def need_of(record: Record) -> Need | None:
    """The device memory that must be there for this plan, ``None`` when the record holds no size at all.

    What the allocator must hold over all phases (live tensors and the part of its cache that it cannot give back), then
    what lies outside the allocator, then a margin: 3 % (at least 256 MiB) where
    it was measured, the stated uncertainty (at least 5 % and 256 MiB where it states none) where it was predicted.
    """
    if record.outcome is Outcome.OOM:
        return _need_of_failed(record)
    seen = Peaks.over([record, *record.phases.values()])
    inside = _inside(seen)
    if not inside:
        return None
    terms = [*inside, _outside(record, seen)]
    terms.append(_margin(record, sum(term.num_bytes for term in terms)))
    return Need(terms=tuple(term for term in terms if term.num_bytes))


def need_against(record: Record, cap_bytes: int) -> int:
    """Bytes of a record's need; what did not complete did not fit the cap, whatever is known of its size."""
    need = need_of(record)
    known = need.total_bytes if need is not None else 0
    return known if record.is_complete and known else max(known, cap_bytes + 1)


def _inside(seen: Peaks) -> list[Term]:
    """Live tensors and the cache beside them; what is cached beyond a few per cent is given back when short."""
    live = seen.peak_allocated_bytes
    if live is None:
        whole = seen.peak_reserved_bytes if seen.peak_reserved_bytes is not None else seen.peak_used_bytes
        return [] if whole is None else [Term(name="allocator", num_bytes=whole, because="peak over all phases")]
    terms = [Term(name="live", num_bytes=live, because="peak of live tensors over all phases")]
    cached = max(0, (seen.peak_reserved_bytes or live) - live)
    kept = min(cached, max(math.ceil(live * _KEPT_CACHE), _KEPT_CACHE_BYTES))
    return [
        *terms,
        Term(name="cache", num_bytes=kept, because="cached and split blocks that stay when memory is short"),
    ]


def _outside(record: Record, seen: Peaks) -> Term:
    if record.device.startswith("cpu"):
        return Term(name="outside", num_bytes=0, because="the CPU has no context")
    if seen.peak_used_bytes is not None:
        outside = max(0, seen.peak_used_bytes - (seen.peak_reserved_bytes or seen.peak_allocated_bytes or 0))
        return Term(name="outside", num_bytes=outside, because="context and libraries, by the driver's figure")
    return Term(name="outside", num_bytes=_UNKNOWN_CONTEXT_BYTES, because="context and libraries, not known: assumed")


def _margin(record: Record, base: int) -> Term:
    if record.kind in (Kind.MEASURED, Kind.EMULATED):
        share, because = _MEASURED_MARGIN, "margin for a measured peak: 3 %"
    else:
        share, because = _predicted_share(record)
    size = max(math.ceil(base * share), _LEAST_MARGIN_BYTES)
    return Term(name="margin", num_bytes=size, because=f"{because}, at least 256 MiB")


def _predicted_share(record: Record) -> tuple[float, str]:
    known = record.uncertainty or {}
    for name in ("peak_used_bytes", "peak_reserved_bytes", "peak_allocated_bytes"):
        if name in known:
            return known[name], f"margin for a predicted peak: its stated uncertainty, {known[name]:.1%}"
    return _PREDICTED_MARGIN, "margin for a predicted peak without stated uncertainty: 5 %"


def _need_of_failed(record: Record) -> Need | None:
    told = record.oom or {}
    sizes = [int(told[k]) for k in ("allocated_bytes", "requested_bytes") if told.get(k) is not None]
    limit = told.get("limit_bytes") or record.device_memory_bytes
    seen = Peaks.over([record, *record.phases.values()])
    at_least = max([sum(sizes), seen.peak_used_bytes or 0, math.ceil(_BEYOND * int(limit)) if limit else 0])
    if not at_least:
        return None
    term = Term(name="at least", num_bytes=at_least, because="ran out of device memory")
    return Need(terms=(term,), is_lower_bound=True)


def constraint_names(budget: Budget) -> tuple[str, ...]:
    """Names of the constraints of a budget; every trial of a study carries exactly these."""
    limits = {
        "device_memory": budget.device_memory,
        "host_memory": budget.host_memory,
        "pinned": budget.pinned,
        "latency": budget.latency_s,
        "fidelity": budget.fidelity_db,
    }
    return ("outcome", *(name for name, limit in limits.items() if limit is not None))


def violations(record: Record, budget: Budget) -> dict[str, float]:
    """Every constraint of the budget as a finite number, satisfied when it is zero or less.

    Sizes and seconds are log(figure / limit). ``outcome`` is 1 for a trial that did not complete. A figure that is not
    known violates nothing when the trial failed (its outcome does) and everything when it completed: what is not known
    to fit does not fit.
    """
    need = need_of(record)
    unknown = 0.0 if not record.is_complete else 1.0
    found = {
        "outcome": 0.0 if record.is_complete else 1.0,
        "device_memory": _over(need.total_bytes if need else None, budget.device_memory, unknown),
        "host_memory": _over(_host_bytes(record), budget.host_memory, unknown),
        "pinned": _over(record.pinned_bytes, budget.pinned, unknown),
        "latency": _over(record.median_latency_s, budget.latency_s, unknown),
        "fidelity": _too_unlike(record, budget, unknown),
    }
    return {name: found[name] for name in constraint_names(budget)}


def is_feasible(record: Record, budget: Budget) -> bool:
    """Whether the trial completed within every limit; exactly at a limit is within."""
    return all(value <= 0 for value in violations(record, budget).values())


def _host_bytes(record: Record) -> int | None:
    return Peaks.over([record, *record.phases.values()]).peak_host_bytes


def _over(value: float | None, limit: float | None, unknown: float) -> float:
    if limit is None:
        return 0.0
    if value is None:
        return unknown
    return math.log(max(value, 1e-9) / limit)


def _too_unlike(record: Record, budget: Budget, unknown: float) -> float:
    if budget.fidelity_db is None or not record.is_lossy:
        return 0.0
    told = (record.fidelity or {}).get("psnr_db")
    if told is None:
        return unknown
    return 0.0 if told == math.inf else (budget.fidelity_db - float(told)) / max(abs(budget.fidelity_db), 1.0)
