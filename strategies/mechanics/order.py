"""Learn in which order units are called, to fetch the next one ahead of need."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from paretune.strategies.mechanics.units import Unit

__all__ = ["Order"]

_Step = tuple[Unit | None, Unit | None]


class Order:
    """Predicts the unit that follows from the last two, as they last went.

    Before anything is learned, the order of declaration stands in, until it proves wrong once. A pass that takes
    another path is predicted wrongly where it leaves the known one, which costs time and never correctness.
    """

    def __init__(self, declared: Sequence[Unit]) -> None:
        self._units = tuple(declared)
        self._declared: dict[Unit | None, Unit] = dict(itertools.pairwise(declared))
        self._learned: dict[_Step, Unit | None] = {}
        self._step: _Step = (None, None)
        self._trusts_declaration = True

    def visit(self, unit: Unit) -> None:
        """The unit is needed now."""
        last = self._step[1]
        if last is unit:
            return
        if last is not None and self._declared.get(last) is not unit:
            self._trusts_declaration = False
        self._learned[self._step] = unit
        self._step = (last, unit)

    def end_pass(self) -> None:
        """The outermost call has returned: nothing follows."""
        if self._step != (None, None):
            self._learned[self._step] = None
        self._step = (None, None)

    def ahead(self) -> Iterator[Unit]:
        """The next units of this pass, the nearest first."""
        step = self._step
        for _ in range(len(self._units)):
            unit = self._after(step)
            if unit is None:
                return
            yield unit
            step = (step[1], unit)

    def _after(self, step: _Step) -> Unit | None:
        if step in self._learned:
            return self._learned[step]
        if not self._trusts_declaration:
            return None
        return self._units[0] if step == (None, None) else self._declared.get(step[1])
