"""What happened on the machine inside one call, event by event, so that a twin of the module can do it again.

Playing a tape asks the allocator, the ledgers and the timeline for the same things in the same order as the call did. It is as
exact as running the twin: fragmentation, waits and peaks come out by themselves. Only the work of finding out is left out.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from paretune.harness.simulator.calls import Results, describe
from paretune.harness.simulator.storage import Storage
from paretune.harness.simulator.timeline import launch

if TYPE_CHECKING:
    from paretune.harness.simulator.ledger import Label
    from paretune.harness.simulator.machine import Machine

__all__ = ["Recorder", "Tape"]

_LAUNCH, _TAKE, _GIVE, _WORKSPACE = range(4)


class Recorder:
    """Listens while a module runs, and makes a `Tape` of it unless something happened that a tape cannot repeat.

    Such are copies between devices, waits, reads of values, work on other streams, pinned memory, memory that is kept
    beyond the results, and changes to memory that was there before.
    """

    def __init__(self, machine: Machine, root: torch.nn.Module) -> None:
        self._machine = machine
        self._modules = {id(module): number for number, module in enumerate(root.modules())}
        self._events: list[tuple[Any, ...]] = []
        self._numbers: dict[int, int] = {}
        self._num_taken = 0
        self._is_spoilt = False
        self._now_s = machine.host_s
        self._num_operators, self._operators = machine.num_operators, machine.operators.copy()

    def spoil(self) -> None:
        """Something happened that cannot be repeated by a tape."""
        self._is_spoilt = True

    def launches(self, index: int, kernel_s: float, host_s: float) -> None:
        """A kernel is about to be submitted on the current stream."""
        self._events.append((_LAUNCH, self._gap_s(), index, kernel_s, host_s))

    def submitted(self) -> None:
        """The kernel has been submitted: the host may have waited for room in the launch queue."""
        self._now_s = self._machine.host_s

    def takes(self, storage: Storage) -> None:
        """Memory was taken."""
        if storage.pinned:
            self._is_spoilt = True
        number = self._numbers[id(storage)] = self._num_taken
        self._num_taken += 1
        self._events.append((_TAKE, self._gap_s(), number, storage.index, storage.nbytes, storage.label, *self._who()))

    def gives(self, storage: Storage) -> None:
        """Memory was given back."""
        number = self._numbers.pop(id(storage), None)
        if number is None:
            self._is_spoilt = True
        else:
            self._events.append((_GIVE, self._gap_s(), number))

    def uses_workspace(self, index: int, size_bytes: int, component: str) -> None:
        """A kernel takes temporary memory."""
        self._events.append((_WORKSPACE, self._gap_s(), index, size_bytes, component, *self._who()))

    def writes(self, storage: Storage) -> None:
        """An operator changes memory in place, which matters when it was there before the call."""
        if id(storage) not in self._numbers:
            self._is_spoilt = True

    def tape(self, result: Any, args: Any, kwargs: Any) -> Tape | None:
        """What was recorded, if a twin can repeat it."""
        results = describe(result, args, kwargs)
        if self._is_spoilt or results is None or results.numbers() != set(self._numbers):
            return None
        machine = self._machine
        return Tape(
            self._events,
            self._gap_s(),
            results,
            kept={number: identity for identity, number in self._numbers.items()},
            num_operators=machine.num_operators - self._num_operators,
            operators=machine.operators - self._operators,
        )

    def _gap_s(self) -> float:
        """What the host has spent since the last event."""
        now_s, before_s = self._machine.host_s, self._now_s
        self._now_s = now_s
        return now_s - before_s

    def _who(self) -> tuple[object, int]:
        machine = self._machine
        return machine.operator, self._modules.get(id(machine.module), 0)


class Tape:
    """One recorded call."""

    def __init__(
        self,
        events: list[tuple[Any, ...]],
        rest_s: float,
        results: Results,
        *,
        kept: dict[int, int],
        num_operators: int,
        operators: Counter[object],
    ) -> None:
        self._events, self._rest_s, self._results, self._kept = events, rest_s, results, kept
        self._num_operators, self._operators = num_operators, operators

    def play(self, machine: Machine, twin: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        """Do it again in the name of a twin of the module. Raises `torch.OutOfMemoryError` where the twin would."""
        outer, taken, made = machine.module, dict[int, Any](), dict[int, Storage]()
        try:
            self._play(machine, list(twin.modules()), taken, made)
        except BaseException:
            for held in taken.values():
                _give(machine, *held)
            raise
        machine.host_s += self._rest_s
        machine.module = outer
        machine.num_operators += self._num_operators
        machine.operators.update(self._operators)
        return self._results.make(machine, args, kwargs, made)

    def _play(
        self, machine: Machine, modules: list[torch.nn.Module], taken: dict[int, Any], made: dict[int, Storage]
    ) -> None:
        cards, kept = machine.cards, self._kept
        for event in self._events:
            kind = event[0]
            machine.host_s += event[1]
            if kind == _LAUNCH:
                launch(cards[event[2]], event[3], event[4])
            elif kind == _GIVE:
                _give(machine, *taken.pop(event[2]))
            elif kind == _TAKE:
                _, _, number, index, nbytes, label, machine.operator, module = event
                machine.module = modules[module]
                if number in kept:
                    made[kept[number]] = Storage(machine, index, nbytes, kind=label[1])
                elif index >= 0:
                    taken[number] = index, cards[index].allocate(nbytes, label), label
                else:
                    machine.host_memory.allocate(nbytes, label)
                    taken[number] = index, nbytes, label
            else:
                _, _, index, nbytes, component, machine.operator, module = event
                machine.module = modules[module]
                cards[index].workspace(nbytes, component)


def _give(machine: Machine, index: int, block: Any, label: Label) -> None:
    if index >= 0:
        machine.cards[index].free(block, label, None)
    else:
        machine.host_memory.free(block, label)
