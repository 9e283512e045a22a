"""What is asked of one child process (Trial) and what is kept of it for ever (Record); plain values, no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["RUN_PHASES_EXCLUDE", "SCHEMA", "Kind", "Outcome", "Peaks", "Phase", "Procedure", "Record", "Trial"]

SCHEMA = 1

RUN_PHASES_EXCLUDE = frozenset({"load", "prepare"})
"""Phases before the pipeline is called; the peaks at the top of a record leave them out."""


class Kind(StrEnum):
    """Where a figure comes from. Figures of different kinds never share a table unmarked."""

    MEASURED = "measured"
    EMULATED = "emulated"  # measured on a larger card whose spare memory was held by a ballast allocation
    SIMULATED = "simulated"
    INFERRED = "inferred"  # never ran: follows from another record or from a lower bound
    PUBLISHED = "published"


class Outcome(StrEnum):
    """How a trial ended. Failure is a result."""

    COMPLETE = "complete"
    INFEASIBLE = "infeasible"
    OOM = "oom"
    OOM_HOST = "oom_host"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    UNSUPPORTED = "unsupported"
    WRONG_OUTPUT = "wrong_output"
    STOPPED = "stopped"  # a short call showed that it does not fit or is clearly too slow; nothing was fully measured


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Peak memory in bytes; ``None`` means not known here, never zero.

    peak_allocated_bytes: live tensors on the device, rounded as its allocator rounds.
    peak_reserved_bytes: what the allocator took from the driver.
    peak_used_bytes: what the driver sees of this process: reserved, context, libraries. This is what must fit.
    peak_host_bytes: host memory of the process. pinned_bytes: the page-locked part of it.
    """

    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_used_bytes: int | None = None
    peak_host_bytes: int | None = None
    pinned_bytes: int | None = None

    @classmethod
    def over(cls, many: Iterable[Peaks]) -> Peaks:
        """The largest of each figure over ``many``."""
        listed = list(many)

        def top(name: str) -> int | None:
            known = [value for peaks in listed if (value := getattr(peaks, name)) is not None]
            return max(known) if known else None

        return Peaks(**{f.name: top(f.name) for f in dataclasses.fields(Peaks)})


@dataclass(frozen=True, kw_only=True)
class Phase(Peaks):
    """Peaks and duration of one phase (load, prepare, encode, denoise, decode, or forward); seconds of the last call."""

    duration_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Procedure:
    """How a trial measures.

    num_warmup calls are kept apart, then between min_iterations and max_iterations are timed until half the interval
    around the median is below ``target_spread`` of it or ``max_seconds`` have passed. ``timeout_s`` bounds the whole child.
    ``check_output`` compares with the reference plan's output on the same seed.
    """

    num_warmup: int = 1
    min_iterations: int = 3
    max_iterations: int = 10
    max_seconds: float = 120.0
    target_spread: float = 0.03
    timeout_s: float = 1800.0
    check_output: bool = True


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One plan to be measured once, in a process of its own. JSON values only.

    workload: a name, a path, ``module:function``, or a mapping with ``name`` and overrides (steps, height, ...).
    device: as users write it (``cuda``, ``cpu``, ``sim:rtx-4070``, ``sim:rtx-4090,memory=80GiB``).
    device_memory_bytes: the cap enforced while it runs, ``None`` for the whole card.
    reference: a file that holds the reference output, written by the first trial that finds it missing.
    """

    workload: Mapping[str, Any]
    device: str
    plan: str = "resident"
    procedure: Procedure = field(default_factory=Procedure)
    device_memory_bytes: int | None = None
    reference: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def key(self, versions: Mapping[str, str]) -> str:
        """Identity of the answer: equal keys mean the same plan, workload, device, cap and library versions."""
        parts = [_plain(self.workload), self.device, self.plan, self.device_memory_bytes, dict(versions)]
        parts.append({k: v for k, v in self.options.items() if k not in ("isolation", "pilot")})
        return hashlib.sha256(_canonical(parts).encode()).hexdigest()[:16]

    def to_json(self) -> str:
        return _canonical(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Trial:
        data = json.loads(text)
        return cls(**{**data, "procedure": Procedure(**data["procedure"])})


@dataclass(frozen=True, kw_only=True)
class Record(Peaks):
    """Everything kept of one trial. The peaks of the class are over the phases of a call, without load and prepare.

    latency_s: one sample per timed whole call; warmup_s the untimed ones before, of which the first is ``first_call_s``
    (``None`` where a pilot came first).
    step_latency_s: denoising steps of the last timed call. compile_s: seconds spent compiling, not in latency.
    oom: for outcome ``oom``: requested_bytes, limit_bytes, allocated_bytes, phase; what is known of the size that failed.
    transfers: h2d_bytes, d2h_bytes, num_copies, copy_s, stall_s, overlap_share, stall_share of one call.
    counters: deterministic counts (operators, allocations, synchronisations, output hash).
    facts: per setting, what really engaged; under ``pilot`` what a short call before the measurement predicted.
    uncertainty: relative, by metric, for simulated figures.
    """

    schema: int = SCHEMA
    key: str = ""
    kind: Kind
    outcome: Outcome
    reason: str | None = None
    workload: Mapping[str, Any]
    device: str
    plan: str
    is_lossy: bool = False
    device_memory_bytes: int | None = None
    latency_s: tuple[float, ...] = ()
    warmup_s: tuple[float, ...] = ()
    first_call_s: float | None = None
    compile_s: float | None = None
    load_s: float | None = None
    step_latency_s: tuple[float, ...] = ()
    phases: Mapping[str, Phase] = field(default_factory=dict)
    fidelity: Mapping[str, Any] | None = None
    transfers: Mapping[str, Any] | None = None
    counters: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    oom: Mapping[str, Any] | None = None
    uncertainty: Mapping[str, float] | None = None
    advice: tuple[str, ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return self.outcome is Outcome.COMPLETE

    @property
    def median_latency_s(self) -> float | None:
        """Median of the timed calls, ``None`` when nothing was timed."""
        if not self.latency_s:
            return None
        ranked, half = sorted(self.latency_s), len(self.latency_s) // 2
        return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2

    @property
    def needed_bytes(self) -> int | None:
        """Device memory that must be there for the plan to run: the driver's figure where known, over all phases."""
        seen = Peaks.over([self, *self.phases.values()])
        for value in (seen.peak_used_bytes, seen.peak_reserved_bytes, seen.peak_allocated_bytes):
            if value is not None:
                return value
        return None

    def to_json(self) -> str:
        """One line; floats that JSON cannot say (inf, nan) become strings that ``from_json`` reads back."""
        return json.dumps(_plain(dataclasses.asdict(self)), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read what ``to_json`` wrote. Raises ``ValueError`` for other schema numbers and for what is no record."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """Build a record from parsed JSON; same errors as ``from_json``."""
        if not isinstance(data, Mapping) or "schema" not in data:
            raise ValueError("not a record: no schema number")
        if data["schema"] != SCHEMA:
            raise ValueError(
                f"record has schema {data['schema']}, this version reads {SCHEMA}. Use the version that wrote it"
            )
        known = {f.name for f in dataclasses.fields(cls)}
        if extra := set(data) - known:
            raise ValueError(f"record has unknown fields: {', '.join(sorted(extra))}")
        values = {name: _revived(value) for name, value in data.items()}
        values["kind"], values["outcome"] = Kind(values["kind"]), Outcome(values["outcome"])
        values["phases"] = {name: Phase(**phase) for name, phase in values.get("phases", {}).items()}
        for name in ("latency_s", "warmup_s", "step_latency_s", "advice"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)


_UNSAID = ("float:inf", "float:-inf", "float:nan")
"""How floats are written that JSON cannot say; any other text that begins so is a text."""


def _canonical(value: Any) -> str:
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    """JSON values only: numpy and torch scalars lose their type, anything unknown becomes its text."""
    if value is None or isinstance(value, bool | int | str):
        return value.value if isinstance(value, StrEnum) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else f"float:{value}"
    if isinstance(value, Mapping):
        made: dict[str, Any] = {}
        for key, item in value.items():
            made[repr(key) if str(key) in made else str(key)] = _plain(item)
        return made
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    return _plain(value.item()) if hasattr(value, "item") and _num_elements(value) == 1 else str(value)


def _num_elements(value: Any) -> int:
    """Of a numpy scalar or array, or of a torch tensor; a tensor without data has none that could be told."""
    if not hasattr(value, "numel"):
        return int(getattr(value, "size", 1))
    return 0 if value.device.type in ("meta", "sim") else int(value.numel())


def _revived(value: Any) -> Any:
    if isinstance(value, str) and value in _UNSAID:
        return float(value.removeprefix("float:"))
    if isinstance(value, dict):
        return {key: _revived(item) for key, item in value.items()}
    return [_revived(item) for item in value] if isinstance(value, list) else value
