"""Units: the parts of a model that come to the device and leave it together, and how long each one stays."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from paretune.strategies.mechanics.bundle import Bundle, WriteBack
from paretune.strategies.mechanics.cells import Cell, cells_of, is_opaque, own_tensors
from paretune.strategies.mechanics.link import Link
from paretune.strategies.mechanics.opaque import OpaqueBundle
from paretune.strategies.mechanics.staging import Staging

__all__ = ["Frame", "Group", "Keep", "Unit", "units_of"]


Users = tuple[int, ...]


class Keep(enum.Enum):
    """How long a unit stays on the device once something needed it.

    CALL: until the module that needed it returns. ENTRY: until the outermost call into the component returns. TURN:
    until another component of the pipeline needs the device, or the pipeline's own call returns. ALWAYS: until the
    plan is undone, or as TURN where components take turns.
    """

    CALL = "call"
    ENTRY = "entry"
    TURN = "turn"
    ALWAYS = "always"


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """What a strategy asks for: these modules' own tensors move together when one of ``triggers`` is called."""

    name: str
    owners: tuple[nn.Module, ...]
    triggers: tuple[nn.Module, ...]
    keep: Keep
    on_disk: bool = False


@dataclass(kw_only=True, eq=False)
class Unit:
    """A group at work. num_uses: calls in progress that need it. num_fetches: how often it was brought so far.

    is_edited: it must be written back when it leaves.
    """

    group: Group
    bundles: tuple[Bundle, ...]
    num_uses: int = 0
    num_fetches: int = 0
    is_fetched: bool = False
    is_shown: bool = False
    is_edited: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes on the device while the unit is there."""
        return sum(bundle.num_bytes for bundle in self.bundles)

    def fetch(self, link: Link, staging: Staging | None) -> None:
        """Start bringing the unit; on an error nothing of it is left on the device."""
        if self.is_fetched:
            return
        done: list[Bundle] = []
        try:
            for bundle in self.bundles:
                bundle.fetch(link, staging, is_passing=self.group.keep is Keep.CALL)
                done.append(bundle)
        except BaseException:
            for bundle in done:
                bundle.drop(link, was_read=False)
            raise
        self.is_fetched = True
        self.num_fetches += 1

    def show(self, link: Link) -> None:
        """Make the unit's tensors point at the device."""
        if not self.is_shown:
            for bundle in self.bundles:
                bundle.show(link)
            self.is_shown = True

    def send_away(self, link: Link) -> None:
        """Take the unit off the device, whether it was computed with, only fetched, or not there."""
        was_read = self.is_shown
        if self.is_shown:
            self.is_shown = False
            for bundle in self.bundles:
                bundle.hide(link, write_back=self._write_back())
        if self.is_fetched:
            self.is_fetched = False
            for bundle in self.bundles:
                bundle.drop(link, was_read=was_read)
        self.num_uses, self.is_edited = 0, False

    def _write_back(self) -> WriteBack:
        if self.is_edited:
            return WriteBack.ALL
        trains = any(owner.training and owner._buffers for owner in self.group.owners)
        return WriteBack.BUFFERS if trains else WriteBack.CHANGED


def units_of(groups: Sequence[Group]) -> list[Unit]:
    """Turn groups into units: storage that several groups need becomes a bundle that they share.

    Raises ``ValueError`` when a weight has no data.
    """
    members = [_tensors(group) for group in groups]
    needed_by: dict[torch.Tensor, list[int]] = {}
    for index, tensors in enumerate(members):
        for tensor in tensors:
            needed_by.setdefault(tensor, []).append(index)
    bundles = [*_bundles(needed_by), *_opaque_bundles(needed_by)]
    return [
        Unit(group=group, bundles=tuple(bundle for users, bundle in bundles if index in users))
        for index, group in enumerate(groups)
    ]


def _bundles(needed_by: Mapping[torch.Tensor, list[int]]) -> list[tuple[Users, Bundle]]:
    together: dict[Users, list[Cell]] = {}
    for cell in cells_of(tensor for tensor in needed_by if not is_opaque(tensor)):
        users = {index for look in cell.looks for index in needed_by[look.tensor]}
        together.setdefault(tuple(sorted(users)), []).append(cell)
    return [(users, Bundle(cells)) for users, cells in together.items()]


def _opaque_bundles(needed_by: Mapping[torch.Tensor, list[int]]) -> list[tuple[Users, Bundle]]:
    together: dict[Users, list[torch.Tensor]] = {}
    for tensor, users in needed_by.items():
        if is_opaque(tensor):
            together.setdefault(tuple(users), []).append(tensor)
    return [(users, OpaqueBundle(tensors)) for users, tensors in together.items()]


def _tensors(group: Group) -> list[torch.Tensor]:
    return list(dict.fromkeys(tensor for owner in group.owners for tensor in own_tensors(owner)))


@dataclass(kw_only=True, eq=False)
class Frame:
    """One call in progress: the module, and the units that it holds."""

    module: nn.Module
    held: list[Unit] = field(default_factory=list)
