"""An observer that writes down what it is told."""

from __future__ import annotations


class Following:
    """Phases by name and every step as ``step``, in the order they came."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def phase(self, name: str) -> None:
        self.log.append(name)

    def step(self) -> None:
        self.log.append("step")
