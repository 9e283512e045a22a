"""Say what was alive when memory was highest: by component and kind, and which operator of which module reached it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paretune.harness.simulator.ledger import Ledger, Peak
    from paretune.harness.simulator.machine import Machine

__all__ = ["NOT_A_CALL", "explain", "explain_peak"]

NOT_A_CALL = ("load", "prepare", "undo", "")
"""Phases that stand before or after the calls of a workload."""


def explain(machine: Machine) -> dict[str, Any]:
    """For each card, the picture of its highest peak over the phases of a call, and of every phase; JSON values."""
    return {f"sim:{card.index}": _of(card.ledger) for card in machine.cards} | {"host": _of(machine.host_memory.total)}


def explain_peak(peak: Peak) -> dict[str, Any]:
    """One picture: total bytes, operator, module, and bytes by component and kind, largest first."""
    alive = sorted(peak.by_label.items(), key=lambda item: -item[1])
    return {
        "total_bytes": peak.total_bytes,
        "operator": peak.operator,
        "module": peak.module,
        "alive": [{"component": component, "kind": kind, "bytes": size} for (component, kind), size in alive],
    }


def _of(ledger: Ledger) -> dict[str, Any]:
    ledger.close_phase()
    pictures = {phase: picture for phase, picture in ledger.phase_pictures.items() if phase not in NOT_A_CALL}
    if not pictures:
        return {"phases": {}}
    top = max(pictures, key=lambda phase: pictures[phase].total_bytes)
    phases = {phase: explain_peak(picture) for phase, picture in pictures.items()}
    return {"phase": top, **phases[top], "phases": phases}
