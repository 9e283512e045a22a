"""Repeat a module call that was seen to repeat itself: the same memory, the same seconds, none of the work.

A denoiser is called once a step with inputs of the same shapes. When two calls in a row have left the same marks (operators,
bytes, copies, clocks), further calls only move the clocks and make the outputs. In the pipeline's next call one such call is
enough. Nothing is replayed that changed what stays allocated, that returned values, or that follows calls of other components
than the time before: weights may have moved in between. Components that take turns at every step are replayed in turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from paretune.harness.simulator.calls import describe, signature
from paretune.harness.simulator.errors import read_below, wants_data
from paretune.harness.simulator.ledger import Ledger
from paretune.harness.simulator.machine import Machine
from paretune.harness.simulator.marks import LEFTOVER_BYTES, Marks, advance, alike, clocks_of, resumes
from paretune.harness.simulator.memory_timeline import by_kind
from paretune.harness.simulator.turns import Turns
from paretune.harness.simulator.twins import Twins

__all__ = ["Replay"]


@dataclass(slots=True)
class _Known:
    """The last call of one module with one signature, and what it must be like to be repeated: the one before it if
    nothing else ran in between, or the one that was repeated last, before something else ran."""

    latest: Marks
    before: Marks | None = None
    repeated: Marks | None = None
    _is_steady: bool | None = None

    def is_steady(self) -> bool:
        """Whether the last call did the same as one of those; decided once, after they have settled."""
        if self._is_steady is None:
            follows = self.before is not None and alike(self.before, self.latest)
            self._is_steady = follows or (self.repeated is not None and resumes(self.repeated, self.latest))
        return self._is_steady

    def can_repeat(self, ledgers: list[Ledger]) -> bool:
        """Whether a call that begins now would do what the last one did."""
        return self.is_steady() and self.latest.was_entered_with(ledgers)

    def followed_by(self, marks: Marks, *, directly: bool) -> _Known:
        """What is known after one more call that was run."""
        return _Known(marks, self.latest if directly else None, self.latest if self.is_steady() else self.repeated)


@dataclass
class Replay:
    """Takes the place of `torch.nn.Module.__call__` while a simulation is active; only outermost calls are looked at."""

    machine: Machine
    num_replayed: int = 0
    twins: Twins = field(init=False)
    _known: dict[Any, _Known] = field(default_factory=dict)
    _is_inside: bool = False
    _turns: Turns = field(default_factory=Turns)
    _unsettled: Marks | None = None

    def __post_init__(self) -> None:
        self.twins = Twins(self.machine)

    def __enter__(self) -> Replay:
        original = self._original = torch.nn.Module.__call__
        replay = self

        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            try:
                if replay._is_inside:
                    return replay.twins.call(original, module, args, kwargs)
                return replay._outermost(module, args, kwargs)
            except RuntimeError as error:
                if wants_data(error):
                    raise read_below(replay.machine, module, error) from error
                raise

        torch.nn.Module.__call__ = call  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: Any) -> None:
        torch.nn.Module.__call__ = self._original  # type: ignore[method-assign]

    def settle(self) -> None:
        """Something else happens: what is allocated now beyond the outputs of the call before, it left behind."""
        marks, self._unsettled = self._unsettled, None
        self.machine.on_next = None
        if marks is not None:
            now = sum(ledger.now_bytes for ledger in self.machine.ledgers())
            marks.leftover_bytes = max(0, now - sum(marks.entry_bytes) - marks.output_bytes)
            marks.was_tidied = True

    def _outermost(self, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        self.settle()
        given = signature((args, kwargs))
        component = self.machine.component_of(module)
        num_others = self._turns.take(component or id(module))
        follows_itself = num_others == 0 or (num_others is not None and component is not None)
        if given is None or (torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())):
            return self._run(module, args, kwargs)[0]
        key = (id(module), type(module), module.training, given)
        known = self._known.get(key)
        if known is not None and follows_itself and known.can_repeat(self.machine.ledgers()):
            self.num_replayed += 1
            return self._repeat(known.latest, args, kwargs)
        result, marks = self._run(module, args, kwargs)
        self._known[key] = _Known(marks) if known is None else known.followed_by(marks, directly=follows_itself)
        if marks.leftover_bytes > LEFTOVER_BYTES:
            self._unsettled, self.machine.on_next = marks, self.settle
        return result

    def _run(self, module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Marks]:
        machine = self.machine
        traffic_before, clocks = machine.traffic.copy(), clocks_of(machine)
        ledgers = machine.ledgers()
        before = [ledger.now_bytes for ledger in ledgers]
        counted, operators = machine.operators.copy(), machine.num_operators
        reserved = [card.allocator.reserved_bytes for card in machine.cards]
        allocations = [card.num_allocations for card in machine.cards]
        for ledger in ledgers:
            ledger.open_window()
        kinds_before = [by_kind(ledger.by_label) for ledger in ledgers]
        self._is_inside = True
        try:
            result = self._original(module, *args, **kwargs)
        finally:
            self._is_inside = False
            self.twins.forget()
        outputs = describe(result, args, kwargs)
        output_bytes = outputs.new_bytes if outputs is not None else 0
        kept = [ledger.now_bytes - start for ledger, start in zip(ledgers, before, strict=True)]
        marks = Marks(
            clocks_before=clocks,
            clocks_after=clocks_of(machine),
            raised=[_raised(one.close_window(), earlier) for one, earlier in zip(ledgers, kinds_before, strict=True)],
            peaks=[ledger.window_peak_bytes - start for ledger, start in zip(ledgers, before, strict=True)],
            reserved_before=reserved,
            reserved=[card.allocator.reserved_bytes for card in machine.cards],
            entry_bytes=before,
            entry_kinds=kinds_before,
            kept_bytes=kept,
            num_operators=machine.num_operators - operators,
            operators=machine.operators - counted,
            num_allocations=[card.num_allocations - had for card, had in zip(machine.cards, allocations, strict=True)],
            traffic=machine.traffic.minus(traffic_before),
            outputs=outputs,
            output_bytes=output_bytes,
            leftover_bytes=sum(kept) - output_bytes,
        )
        return result, marks

    def _repeat(self, marks: Marks, args: Any, kwargs: Any) -> Any:
        machine = self.machine
        for ledger, peak, raised in zip(machine.ledgers(), marks.peaks, marks.raised, strict=True):
            kinds = by_kind(ledger.by_label)
            ledger.touch(
                ledger.now_bytes + peak, {kind: kinds.get(kind, 0) + raised[kind] for kind in raised} if raised else {}
            )
        advance(machine, marks)
        machine.num_operators += marks.num_operators
        machine.operators.update(marks.operators)
        machine.traffic.add(marks.traffic)
        counted = [card.num_allocations for card in machine.cards]
        results = marks.outputs.make(machine, args, kwargs)
        for card, before, added in zip(machine.cards, counted, marks.num_allocations, strict=True):
            card.num_allocations = before + added
        return results


def _raised(at_peak: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """By how much each kind of bytes stood higher, or lower, at the peak; empty where the peak's kinds are not known."""
    if not at_peak:
        return {}
    return {kind: at_peak.get(kind, 0) - before.get(kind, 0) for kind in {**before, **at_peak}}
