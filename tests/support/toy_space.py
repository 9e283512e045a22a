"""Toy strategies and a made-up machine that runs them: for tests of spaces, searches and recommendations."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import paretune.harness.space
import paretune.strategies
from paretune.harness import environment
from paretune.harness.components import Components
from paretune.harness.config import parse
from paretune.harness.question import Question, prepare
from paretune.harness.records import Kind, Outcome, Record, Trial
from paretune.strategies import Excludes, Forbids, Needs, Plan, Requires, Surroundings, tunable
from paretune.strategies.base import ComponentStrategy, PipelineStrategy, Role, Strategy
from paretune.strategies.rules import Rule

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Stream(ComponentStrategy):
    name: ClassVar[str] = "stream"
    places_weights: ClassVar[bool] = True
    rules: ClassVar[tuple[Rule, ...]] = (
        Excludes(other="turns", because="both move the same weights", anywhere=True),
        Forbids(
            when=lambda s: s.overlap and s.level == "block" and s.group > 1, because="prefetch needs groups of one"
        ),
        Needs(capability="streams", because="copies overlap on a stream", when=lambda s: s.overlap),
    )
    level: str = tunable(default="block", choices=("block", "leaf"), alias="kind")
    group: int = tunable(default=1, choices=(1, 2, 4), when=lambda s: s.level == "block")
    overlap: bool = tunable(default=False, choices=(False, True))

    def apply(self, model: Any, device: Any, undo: Any) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Keep(ComponentStrategy):
    name: ClassVar[str] = "keep"
    places_weights: ClassVar[bool] = True
    blocks: int = tunable(default=0, choices=(0, 4, 8, 12, 16, 20, 24, 28), free=True)

    def apply(self, model: Any, device: Any, undo: Any) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Turns(PipelineStrategy):
    name: ClassVar[str] = "turns"
    places_weights: ClassVar[bool] = True

    def apply(self, parts: Any, device: Any, undo: Any) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Cast(ComponentStrategy):
    name: ClassVar[str] = "cast"
    changes_output: ClassVar[bool] = True
    storage: str = tunable(default="float8", choices=("float8",))

    def apply(self, model: Any, device: Any, undo: Any) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Tile(ComponentStrategy):
    name: ClassVar[str] = "tile"
    roles: ClassVar[tuple[Role, ...]] = ("vae",)
    size: int = tunable(default=512, choices=(256, 512))

    def apply(self, model: Any, device: Any, undo: Any) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Fast(ComponentStrategy):
    name: ClassVar[str] = "fast"
    rules: ClassVar[tuple[Rule, ...]] = (Requires(other="cast", because="the kernel reads float8"),)
    backend: str = tunable(default="a", choices=("a", "b", "c"))

    def apply(self, model: Any, device: Any, undo: Any) -> None: ...


TOYS: Mapping[str, type[Strategy]] = MappingProxyType({c.name: c for c in (Cast, Fast, Keep, Stream, Tile, Turns)})

COMPONENTS = Components(
    roles={"text_encoder": "text_encoder", "transformer": "denoiser", "vae": "vae"},
    classes={"text_encoder": "ToyEncoder", "transformer": "ToyTransformer", "vae": "ToyDecoder"},
)
WHERE = Surroundings(device_type="toy", capabilities=frozenset({"streams"}))
STRATEGIES = {
    "pipeline": {"turns": True},
    "denoiser": {"stream": True, "keep": True, "cast": True},
    "vae": {"tile": True},
}


@contextmanager
def toy_registry() -> Iterator[None]:
    """Inside, the toy strategies are the only ones there are."""
    places = ((paretune.strategies, "registry"), (paretune.harness.space, "registry"))
    before = [getattr(place, name) for place, name in places]
    for place, name in places:
        setattr(place, name, lambda: TOYS)
    try:
        yield
    finally:
        for (place, name), value in zip(places, before):
            setattr(place, name, value)


def question(**changes: Any) -> Question:
    """A question over the toy space on a made-up card; keyword arguments are keys of the spec."""
    document = {
        "workload": "toy",
        "device": "toy:0",
        "budget": {"device_memory": "12GiB"},
        "space": {"strategies": STRATEGIES},
        **changes,
    }
    return prepare(parse(document), where=WHERE, components=COMPONENTS)


Judge = Callable[[Plan], tuple[Outcome, float, float]]


def made_up(plan: Plan) -> tuple[Outcome, float, float]:
    """Outcome, seconds and GiB of a plan on the made-up card: 20 GiB of transformer, 5 of encoder, 4 at decode."""
    kept, seconds, speed, decode = 20.0, 10.0, 1.0, 4.0
    names = {setting.strategy.name: setting.strategy for setting in plan}
    cast = 0.5 if "cast" in names else 1.0
    if isinstance(keep := names.get("keep"), Keep):
        kept, speed = keep.blocks / 28 * 20, 1 + 0.8 * cast * (1 - keep.blocks / 28)
    if isinstance(stream := names.get("stream"), Stream):
        kept = 0.3 if stream.level == "leaf" else 0.7 * stream.group
        speed = 4.0 if not stream.overlap else 1.9 * cast + (0.3 if stream.level == "leaf" else 0)
    if isinstance(tile := names.get("tile"), Tile):
        decode, seconds = tile.size / 256, seconds + 0.4
    encoder = 0.0 if "turns" in names else 5.0
    seconds += 6.0 if "turns" in names else 0.0
    peak = max(kept * cast + encoder + 1.0, (0 if "turns" in names else kept * cast + encoder) + decode)
    return Outcome.COMPLETE, seconds * speed + (0.2 if "cast" in names else 0), peak


class Machine:
    """Runs trials by a judge and counts how often each plan ran. ``card_gib``: what it can hold."""

    def __init__(self, judge: Judge = made_up, *, card_gib: float = 1e9) -> None:
        self.judge, self.card_gib = judge, card_gib
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, trial: Trial) -> Record:
        with self._lock:
            self.counts[trial.plan] += 1
        outcome, seconds, gib = self.judge(Plan.parse(trial.plan))
        if outcome is Outcome.COMPLETE and gib > self.card_gib:
            outcome = Outcome.OOM
        return made_record(trial, outcome, seconds, gib)


def made_record(trial: Trial, outcome: Outcome, seconds: float, gib: float) -> Record:
    """The record of a trial with these figures; out of memory keeps only the size that failed."""
    complete = outcome is Outcome.COMPLETE
    peak = int(gib * GIB) if math.isfinite(gib) else 0
    size = {f"peak_{name}_bytes": peak if complete else None for name in ("allocated", "reserved", "used")}
    oom = {"allocated_bytes": peak - GIB, "requested_bytes": GIB} if outcome is Outcome.OOM else None
    return Record(
        key=trial.key(environment.versions()),
        kind=Kind.MEASURED,
        outcome=outcome,
        reason=None if complete else "made up",
        workload=trial.workload,
        device=trial.device,
        plan=trial.plan,
        is_lossy=Plan.parse(trial.plan).is_lossy,
        device_memory_bytes=trial.device_memory_bytes,
        latency_s=(seconds,) if complete else (),
        oom=oom,
        options=trial.options,
        **size,
    )


def lossless(record: Record) -> Record:
    """The same record, called exact."""
    return dataclasses.replace(record, is_lossy=False)
