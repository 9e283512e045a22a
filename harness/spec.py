"""The question: what to run, where, in how much memory, over which plans, and how hard to look for the answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from paretune.harness.records import Procedure
from paretune.strategies.sizes import parse_size

__all__ = ["LADDER", "SAMPLERS", "Budget", "Effort", "ProcedureSpec", "Search", "Space", "Spec"]

SAMPLERS = ("residual", "grid", "random", "coordinate", "tpe", "gp", "nsga2")
"""Names behind ``--sampler``; the first is the default."""

LADDER = tuple(f"{gib}GiB" for gib in (6, 8, 10, 12, 16, 24, 32, 48, 80))
"""The memory sizes that one study answers."""

Size = Annotated[int, BeforeValidator(lambda value: parse_size(value)), Field(ge=2**20)]
Count = Annotated[int, Field(ge=1, strict=True)]
Number = Annotated[float, Field(strict=True)]
Seconds = Annotated[Number, Field(gt=0, allow_inf_nan=False)]
Switch = Annotated[bool, Field(strict=True)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Budget(_Strict):
    """What the answer may use. ``None`` leaves that figure free.

    device_memory: bytes that everything on the device must fit into. host_memory, pinned: bytes of host memory.
    latency_s: seconds that a call may last. fidelity_db: least PSNR against the reference, in dB, for lossy plans.
    """

    device_memory: Size | None = None
    host_memory: Size | None = None
    pinned: Size | None = None
    latency_s: Seconds | None = None
    fidelity_db: Number | None = None


class Effort(_Strict):
    """What the search may use: finished trials, seconds, trials in a row without a gain.

    workers: processes at a time in simulation; on a real device trials would disturb each other and always run singly.
    finalists: how many of the fastest plans are measured again in turns on a real device.
    """

    max_trials: Count = 60
    max_seconds: Seconds | None = None
    patience: Count | None = None
    workers: Count = 1
    finalists: Annotated[int, Field(ge=0, strict=True)] = 3


class Search(_Strict):
    """How plans are proposed. ``explore`` is the share of proposals that go where the least is known.

    pilot: on a real device, where a call has many steps, make a call of two steps first and measure fully only what fits
    and is not clearly too slow.
    """

    sampler: Literal["residual", "grid", "random", "coordinate", "tpe", "gp", "nsga2"] = "residual"
    seed: Annotated[int, Field(strict=True)] = 0
    explore: Annotated[Number, Field(ge=0, le=0.5)] = 0.1
    prior: Switch = True
    pilot: Switch = True


class Space(_Strict):
    """Which plans may be tried; three ways that add up.

    preset: a file of ``configs/spaces`` or ``auto`` (by the family of the model); none where plans or strategies stand.
    plans: plans as text. strategies: per component or role (or ``pipeline``) and strategy, its values by parameter.
    exclude: names of strategies that are never tried.
    """

    preset: str | None = None
    plans: tuple[str, ...] = ()
    strategies: Mapping[str, Mapping[str, Switch | Mapping[str, Any]]] = Field(default_factory=dict)
    exclude: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _preset_unless_told(self) -> Space:
        if self.preset is None and not self.plans and not self.strategies:
            object.__setattr__(self, "preset", "auto")
        return self


class ProcedureSpec(_Strict):
    """How a trial measures, see ``records.Procedure``; what is left out keeps its default."""

    num_warmup: Annotated[int, Field(ge=0, strict=True)] = Procedure.num_warmup
    min_iterations: Count = Procedure.min_iterations
    max_iterations: Count = Procedure.max_iterations
    max_seconds: Seconds = Procedure.max_seconds
    target_spread: Annotated[Number, Field(gt=0)] = Procedure.target_spread
    timeout_s: Seconds = Procedure.timeout_s
    check_output: Switch = Procedure.check_output

    @model_validator(mode="after")
    def _limits_agree(self) -> ProcedureSpec:
        if self.max_iterations < self.min_iterations:
            raise ValueError("max_iterations is below min_iterations; raise it")
        return self

    def procedure(self) -> Procedure:
        """The same as the value that trials carry."""
        return Procedure(**self.model_dump())


class Spec(_Strict):
    """One question, complete. ``workload`` holds ``name`` (or a path, hub id, ``module:function``) and overrides.

    objective: ``latency`` finds the fastest plan that fits; ``memory`` the smallest that is fast enough.
    allow_lossy: whether plans that may change the output may be recommended.
    """

    workload: Mapping[str, Any]
    device: str = "auto"
    objective: Literal["latency", "memory"] = "latency"
    allow_lossy: Switch = False
    budget: Budget = Budget()
    ladder: tuple[Size, ...] = ()
    space: Space = Space()
    procedure: ProcedureSpec = ProcedureSpec()
    effort: Effort = Effort()
    search: Search = Search()

    @field_validator("workload", mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("workload")
    @classmethod
    def _has_a_name(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(value.get("name"), str) or not value["name"]:
            raise ValueError("give the workload's `name`: a shipped one, a path, a hub id, or `module:function`")
        return value

    @model_validator(mode="after")
    def _memory_needs_a_latency(self) -> Spec:
        if self.objective == "memory" and self.budget.latency_s is None:
            raise ValueError("objective `memory` needs `budget.latency_s`: how long may a call last?")
        return self

    def question_id(self) -> str:
        """Identity of what is asked, without how hard is looked: studies of one question continue one another."""
        asked = self.model_dump(mode="json", include={"workload", "device", "budget", "space", "objective", "ladder"})
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]
