"""Let a pipeline's components know of each other; its public calls leave the device as they found it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from paretune.strategies.base import Undo
from paretune.strategies.mechanics.entries import bracketed, public_methods, subclass_of
from paretune.strategies.mechanics.residency import residency_of
from paretune.strategies.mechanics.turns import Turns
from paretune.strategies.mechanics.units import Keep

__all__ = ["share_device"]


def share_device(pipeline: Any, components: Sequence[nn.Module], undo: Undo) -> None:
    """Bracket the pipeline's public methods and join the components that have a residency; does nothing without one.

    They take turns if one of them stays only for its turn (model offload). Moving the pipeline is refused meanwhile.
    """
    members = [found for component in components if (found := residency_of(component)) is not None]
    if not members:
        return
    takes_turns = any(unit.group.keep is Keep.TURN for member in members for unit in member.units)
    turns = Turns(members, takes_turns=takes_turns)
    turns.join()
    undo(turns.leave)
    original = type(pipeline)
    namespace: dict[str, Any] = {
        name: bracketed(method, turns.entry) for name, method in public_methods(original, beyond=object)
    }
    if callable(pipeline):
        namespace["__call__"] = bracketed(original.__call__, turns.entry)
    if "to" in namespace:
        namespace["to"] = _refuse_to_move
    pipeline.__class__ = subclass_of(original, namespace)
    undo(lambda: setattr(pipeline, "__class__", original))


def _refuse_to_move(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        f"{type(self).__name__} cannot be moved or converted: a plan places its weights. Undo the plan first."
    )
