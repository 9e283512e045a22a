"""Exhaustive tables for the search bench: every plan of a thinned space on the simulated card, simulated once and kept.

``simulate(name)`` writes a table and goes on where it stopped; ``read(name)`` gives it back. Figures are the simulator's,
for the card that the table's lines name; nothing in them was measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["SPACES", "Row", "read", "simulate", "table_path"]

_FOLDER = Path(__file__).parent / "tables"
_DEVICE = "sim:rtx-4090,memory=1TiB"
_STEPS = 2

_PINNED: Mapping[str, Any] = {"model_offload": {"pin_memory": True}}
_LEAVES: Mapping[str, Any] = {"group_offload": {"level": "leaf_level", "use_stream": True}}
_BOTH: Mapping[str, Any] = {"group_offload": {"level": ["block_level", "leaf_level"], "use_stream": True}}
_PLAIN: Mapping[str, Any] = {"layerwise_casting": {}, "compile": {"scope": "regional"}}
_TILES: Mapping[str, Any] = {"vae_tiling": {"tile_size": 512}}


SPACES: Mapping[str, Mapping[str, Any]] = {
    "sdxl": {"pipeline": _PINNED, "denoiser": {**_BOTH, **_PLAIN}, "text_encoders": _LEAVES, "vae": _TILES},
}
"""Shipped spaces with fewer values, so that all of their plans can be simulated. A new entry is a new table: run
``simulate`` for it, which takes seconds to a minute a plan."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One simulated plan. latency_s: a call of all steps, from two simulated ones; ``None`` where it did not complete."""

    plan: str
    device: str
    outcome: str
    latency_s: float | None
    need_bytes: int | None


def table_path(name: str) -> Path:
    """Where the table of a workload lies."""
    return _FOLDER / f"{name}.jsonl"


def read(name: str) -> list[Row]:
    """The rows of a table. Raises ``FileNotFoundError`` for a workload that has none."""
    return [Row(**json.loads(line)) for line in table_path(name).read_text(encoding="utf-8").splitlines()]


def simulate(name: str) -> Iterator[Row]:
    """Simulate what the table of ``SPACES[name]`` lacks, one row at a time, each on disk before the next begins."""
    from paretune.harness.components import components_of
    from paretune.harness.planner import expand
    from paretune.harness.question import surroundings_of
    from paretune.harness.space import axes_of
    from paretune.harness.workloads import workload_named

    found, path = components_of({"name": name}), table_path(name)
    plans = expand(axes_of(SPACES[name], found.roles), found.roles, surroundings_of(_DEVICE)).feasible
    known = {row.plan for row in read(name)} if path.exists() else set()
    workload = workload_named({"name": name, "steps": _STEPS})
    for plan in map(str, plans):
        if plan not in known:
            row = _simulated(name, plan, workload)
            with path.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(asdict(row)) + "\n")
            yield row


def _simulated(name: str, plan: str, workload: Any) -> Row:
    """In this process: the simulator's figures do not depend on what ran before."""
    from paretune.harness.constraints import need_of
    from paretune.harness.perform import perform
    from paretune.harness.records import Procedure, Trial

    procedure = Procedure(num_warmup=1, min_iterations=1, max_iterations=1)
    trial = Trial(workload={"name": name, "steps": _STEPS}, device=_DEVICE, plan=plan, procedure=procedure)
    record, need = perform(trial, lambda _: None, workload), None
    latency = record.median_latency_s
    if record.is_complete and latency is not None:
        need = need_of(record)
        latency += (_all_steps(name) - _STEPS) * record.step_latency_s[-1]
    return Row(
        plan=plan,
        device=_DEVICE,
        outcome=str(record.outcome),
        latency_s=latency if record.is_complete else None,
        need_bytes=need.total_bytes if need else None,
    )


def _all_steps(name: str) -> int:
    from paretune.harness.workloads import workload_named

    return int(workload_named({"name": name}).spec["steps"])
