"""Made-up records with the shape of real ones, for tests of what is drawn and compared; never shipped as results."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from paretune.harness.records import Kind, Outcome, Phase, Record

GIB = 2**30
WORKLOAD = {"name": "toy-dit", "height": 64, "width": 64, "steps": 4, "seed": 0}
GROUPED = "transformer:group_offload(level=leaf_level,use_stream=true)"
OPERATORS = {"aten::addmm": 40, "aten::copy_": 12, "aten::clone": 0, "aten::convolution": 8}


def record(plan: str = "resident", *, latency_s: float = 2.0, peak_gib: float = 8.0, **changes: Any) -> Record:
    """A complete simulated trial."""
    peak = int(peak_gib * GIB)
    values: dict[str, Any] = {
        "key": f"key of {plan}",
        "kind": Kind.SIMULATED,
        "outcome": Outcome.COMPLETE,
        "workload": WORKLOAD,
        "device": "sim:rtx-4070",
        "plan": plan,
        "latency_s": (latency_s * 1.01, latency_s, latency_s * 0.99),
        "first_call_s": latency_s * 1.5,
        "phases": _phases(peak),
        "transfers": {"h2d_bytes": 4 * GIB, "d2h_bytes": 0, "num_copies": 12, "stall_s": 0.2, "stall_share": 0.1},
        "counters": {"operators": OPERATORS, "num_allocations": 800, "num_synchronisations": 3, "output_hash": "ab12"},
        "fidelity": {"is_exact": True, "psnr_db": math.inf},
        "peak_allocated_bytes": peak,
        "peak_reserved_bytes": int(peak * 1.05),
        "peak_used_bytes": int(peak * 1.1),
        "peak_host_bytes": 12 * GIB,
        "environment": {"versions": {"torch": "2.13.0"}, "processor": "toy"},
    }
    return Record(**{**values, **changes})


def _phases(peak: int) -> dict[str, Phase]:
    sizes = {"load": 0.9, "encode": 0.6, "denoise": 1.0, "decode": 0.7}
    return {name: Phase(peak_allocated_bytes=int(peak * share), duration_s=share) for name, share in sizes.items()}


def failed(plan: str, outcome: Outcome = Outcome.OOM, **changes: Any) -> Record:
    """A trial without figures, out of memory unless told otherwise."""
    oom = {"requested_bytes": 2 * GIB, "allocated_bytes": 11 * GIB, "limit_bytes": 12 * GIB, "phase": "denoise"}
    values: dict[str, Any] = {"oom": oom if outcome is Outcome.OOM else None}
    blank = {"latency_s": (), "phases": {}, "transfers": None, "counters": {}, "fidelity": None, "first_call_s": None}
    blank |= {f.name: None for f in dataclasses.fields(Phase) if f.name != "duration_s"}
    return dataclasses.replace(record(plan), outcome=outcome, **{**blank, **values, **changes})


def study() -> list[Record]:
    """A small study: reference, three feasible plans, one lossy, one that ran out of memory, one refused."""
    return [
        record(),
        record(GROUPED, latency_s=3.0, peak_gib=2.0),
        record("model_offload", latency_s=4.0, peak_gib=5.0),
        record(
            "transformer:layerwise_casting(storage_dtype=float8_e4m3fn)",
            latency_s=2.1,
            peak_gib=5.5,
            is_lossy=True,
            fidelity={"is_exact": False, "psnr_db": 38.2},
        ),
        failed("vae:vae_tiling"),
        failed("group_offload + model_offload", Outcome.INFEASIBLE, reason="both would move the same weights"),
    ]
