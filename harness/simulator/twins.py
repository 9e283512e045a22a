"""Run one of a model's repeated blocks and play its tape for the others, while one forward pass lasts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from paretune.harness.simulator.calls import signature
from paretune.harness.simulator.compiling import is_compiled
from paretune.harness.simulator.likeness import likeness
from paretune.harness.simulator.tape import Recorder, Tape

if TYPE_CHECKING:
    from paretune.harness.simulator.machine import Machine

__all__ = ["Twins"]

_ATTEMPTS = 2
"""The first block of a pass may do something for all that follow, as taking the workspace of cuBLAS."""


class Twins:
    """Tapes of the blocks that ran in this forward pass, by their likeness, arguments and surroundings.

    They are forgotten at its end: whatever else could change how a block runs stays the same within one pass.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._tapes: dict[Any, Tape] = {}
        self._failures: Counter[Any] = Counter()
        self.num_played = 0

    def forget(self) -> None:
        """A new pass begins."""
        self._tapes.clear()
        self._failures.clear()

    def call(self, original: Callable[..., Any], module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        """Call a module inside a pass. Leaves are run: looking for their twins would take longer."""
        machine = self._machine
        if machine.recorder is not None or not module._modules or torch.is_grad_enabled():
            return original(module, *args, **kwargs)
        key = self._key(module, args, kwargs)
        if key is None or self._failures[key] == _ATTEMPTS:
            return original(module, *args, **kwargs)
        known = self._tapes.get(key)
        if known is not None:
            self.num_played += 1
            return known.play(machine, module, args, kwargs)
        result, tape = self._record(original, module, args, kwargs)
        if tape is None or self._key(module, args, kwargs) != key:
            self._failures[key] += 1
        else:
            self._tapes[key] = tape
        return result

    def _record(
        self, original: Callable[..., Any], module: torch.nn.Module, args: Any, kwargs: Any
    ) -> tuple[Any, Tape | None]:
        machine = self._machine
        recorder = machine.recorder = Recorder(machine, module)
        try:
            result = original(module, *args, **kwargs)
            return result, recorder.tape(result, args, kwargs)
        finally:
            machine.recorder = None

    def _key(self, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        given, alike = signature((args, kwargs)), likeness(module)
        if given is None or alike is None:
            return None
        machine = self._machine
        streams = tuple(card.current.stream_id for card in machine.cards)
        modes = is_compiled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled()
        return alike, given, streams, machine.current_index, machine.component, modes
