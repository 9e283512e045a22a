"""Find the parts of a model that repeat (blocks) and the smallest parts that hold weights (leaves)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from torch import nn

from paretune.strategies.mechanics.cells import own_tensors, owners_of
from paretune.strategies.mechanics.units import Group, Keep

__all__ = ["Block", "block_groups", "excluding", "find_blocks", "leaf_groups", "own_bytes", "whole_group"]

_SMALL_SHARE = 1000
_SMALL_BYTES = 256 << 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """One of the repeated parts: an element of the outermost ``ModuleList`` or ``Sequential`` on its path."""

    name: str
    container: str
    module: nn.Module

    @property
    def num_bytes(self) -> int:
        """Bytes of its parameters and buffers, tied ones once."""
        return sum(own_bytes([owner]) for owner in owners_of(self.module))


def own_bytes(owners: Iterable[nn.Module]) -> int:
    """Bytes of the tensors registered on these very modules, tied ones once."""
    tensors = dict.fromkeys(tensor for owner in owners for tensor in own_tensors(owner))
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def find_blocks(model: nn.Module) -> list[Block]:
    """The repeated parts that hold weights, in the order of declaration; a part reached twice counts once."""
    seen: set[nn.Module] = set()
    found = []
    for block in _walk(model, ""):
        if block.module not in seen and owners_of(block.module):
            seen.add(block.module)
            found.append(block)
    return found


def _walk(module: nn.Module, prefix: str) -> Iterator[Block]:
    is_container = isinstance(module, nn.ModuleList | nn.Sequential)
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        if is_container and not isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield Block(name=path, container=prefix.rstrip("."), module=child)
        else:
            yield from _walk(child, f"{path}.")


def block_groups(
    model: nn.Module,
    *,
    num_blocks_per_group: int = 1,
    resident: Collection[nn.Module] = (),
    keep_rest: Keep = Keep.ENTRY,
) -> list[Group]:
    """Groups of consecutive blocks of one container, then what several of them share, then everything else.

    Blocks in ``resident`` form groups that stay. What lies outside of blocks is small and used at both ends of a call:
    it stays for the length of an outermost call, or as ``keep_rest`` says.
    """
    blocks = find_blocks(model)
    teams = list(_teams(blocks, num_blocks_per_group, resident))
    claims: dict[nn.Module, list[int]] = {}
    for index, team in enumerate(teams):
        for owner in dict.fromkeys(o for block in team for o in owners_of(block.module)):
            claims.setdefault(owner, []).append(index)
    groups = []
    for index, team in enumerate(teams):
        own = tuple(owner for owner, users in claims.items() if users == [index])
        keep = Keep.ALWAYS if team[0].module in resident else Keep.CALL
        name = team[0].name if len(team) == 1 else f"{team[0].name}..{team[-1].name}"
        if own:
            triggers = tuple(block.module for block in team)
            groups.append(Group(name=name, owners=own, triggers=triggers, keep=keep))
    shared = [owner for owner, users in claims.items() if len(users) > 1]
    groups += [Group(name=f"shared.{i}", owners=(o,), triggers=(o,), keep=Keep.CALL) for i, o in enumerate(shared)]
    rest = tuple(owner for owner in owners_of(model) if owner not in claims)
    if rest:
        groups.append(Group(name="rest", owners=rest, triggers=rest, keep=keep_rest))
    return groups


def _teams(blocks: Sequence[Block], size: int, resident: Collection[nn.Module]) -> Iterator[list[Block]]:
    team: list[Block] = []
    for block in blocks:
        if team and (
            len(team) == size
            or block.container != team[0].container
            or (block.module in resident) != (team[0].module in resident)
        ):
            yield team
            team = []
        team.append(block)
    if team:
        yield team


def leaf_groups(model: nn.Module) -> list[Group]:
    """One group for the own tensors of each module, except for tiny ones, which stay for the length of a call together.

    A copy has a fixed cost: hundreds of scales and biases of a few KiB would cost more time than all large weights.
    """
    owners = owners_of(model)
    limit = min(_SMALL_BYTES, own_bytes(owners) // _SMALL_SHARE)
    names = {module: name for name, module in model.named_modules()}
    small = tuple(owner for owner in owners if own_bytes([owner]) <= limit)
    groups = [
        Group(name=names[owner], owners=(owner,), triggers=(owner,), keep=Keep.CALL)
        for owner in owners
        if owner not in set(small)
    ]
    if small:
        groups.append(Group(name="small", owners=small, triggers=small, keep=Keep.ENTRY))
    return groups


def whole_group(model: nn.Module) -> list[Group]:
    """Everything at once; it stays while the component has its turn."""
    owners = tuple(owners_of(model))
    return [Group(name="all", owners=owners, triggers=(model,), keep=Keep.TURN)] if owners else []


def excluding(groups: Sequence[Group], model: nn.Module, names: Collection[str]) -> list[Group]:
    """The groups without what lies in the modules of these names, which becomes one group that stays."""
    if not names:
        return list(groups)
    modules = dict(model.named_modules())
    stay = {owner for name in names for owner in owners_of(modules[name])}
    kept = [replace(group, owners=tuple(o for o in group.owners if o not in stay)) for group in groups]
    resident = tuple(owner for owner in owners_of(model) if owner in stay)
    return [
        *(group for group in kept if group.owners),
        Group(name="excluded", owners=resident, triggers=resident, keep=Keep.ALWAYS),
    ]
