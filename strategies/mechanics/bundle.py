"""Tensors that always move together: one contiguous copy brings them all, and dropping the copy sends them back."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import torch
from torch import nn

from paretune.strategies.mechanics.cells import Cell, aligned, version_of
from paretune.strategies.mechanics.link import Link, Transit, outside_autograd
from paretune.strategies.mechanics.staging import Staging

__all__ = ["Bundle", "WriteBack"]

_HOST = torch.device("cpu")
_SMALL_BYTES = 4096


class WriteBack(enum.IntEnum):
    """What returns to the host when a device copy is dropped: tensors whose version says that they were changed,
    besides them all buffers (normalisation in training mode changes its own without leaving a trace), or everything (a
    change through ``tensor.data`` leaves none either)."""

    CHANGED = 0
    BUFFERS = 1
    ALL = 2


class Bundle:
    """Cells that the same units need, with a host copy that stays and a device copy that comes and goes.

    Weights are only read while a model runs, so nothing is written back, unless a tensor's version says that it was
    changed on the device. Several units may want a bundle at once (tied weights): it is there while one of them does.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._small = tuple(cell for cell in cells if _goes_by_itself(cell))
        self._large = tuple(cell for cell in cells if not _goes_by_itself(cell))
        self.cells = (*self._large, *self._small)
        self._offsets_bytes: list[int] = []
        total = 0
        for cell in self._large:
            self._offsets_bytes.append(total)
            total = aligned(total + cell.num_bytes)
        self.num_bytes = total
        """Bytes of the contiguous copy; small buffers, which are copied by themselves, not counted."""
        self._sources: list[tuple[int, torch.Tensor]] = []
        self._small_sources: list[torch.Tensor] = []
        self._host_views: list[list[torch.Tensor]] = []
        self._transit: Transit | None = None
        self._versions: list[int] = []
        self._num_fetched = self._num_shown = 0
        self._write_back = WriteBack.CHANGED
        self._is_pinned = False

    @property
    def is_on_device(self) -> bool:
        """Whether a device copy exists or is on its way."""
        return self._transit is not None

    def keep_on_host(self, flat: torch.Tensor | None) -> None:
        """Move the cells' bytes into ``flat``, or leave them where they are if that is the host."""
        with outside_autograd():
            for cell, offset in zip(self._large, self._offsets_bytes):
                self._sources.append((offset, self._keep(cell, flat, offset)))
            self._small_sources = [self._keep(cell, None, 0) for cell in self._small]
        if flat is not None and self._large:
            self._sources = [(0, flat)]
            self._is_pinned = flat.is_pinned()

    def _keep(self, cell: Cell, flat: torch.Tensor | None, offset_bytes: int) -> torch.Tensor:
        raw = cell.raw()
        if flat is None and raw.device.type == "cpu":
            self._host_views.append(list(cell.originals))
            return raw
        piece = raw.to(_HOST) if flat is None else flat[offset_bytes : offset_bytes + cell.num_bytes].copy_(raw)
        views = cell.views(piece, 0)
        self._host_views.append(views)
        cell.originals, cell.is_moved = tuple(views), True
        cell.show(views)
        return piece

    def fetch(self, link: Link, staging: Staging | None, *, is_passing: bool) -> None:
        """One more unit wants the bytes on the device; the first one starts the copy."""
        self._num_fetched += 1
        if self._num_fetched == 1 and self.cells:
            try:
                self._transit = self._send(link, None if self._is_pinned else staging, is_passing)
            except BaseException:
                self._num_fetched = 0
                raise

    def _send(self, link: Link, staging: Staging | None, is_passing: bool) -> Transit:
        sources = staging.gather(self.num_bytes, self._sources) if staging else self._sources
        transit = link.fetch(self.num_bytes, sources, small=self._small_sources, is_passing=is_passing)
        if staging:
            staging.sent(transit)
        return transit

    def show(self, link: Link) -> None:
        """One more unit computes with the bytes; the first one makes the tensors point at the device."""
        self._num_shown += 1
        if self._num_shown == 1 and self._transit is not None:
            with outside_autograd():
                link.arrive(self._transit)
                for cell, offset in zip(self._large, self._offsets_bytes):
                    cell.show(cell.views(self._transit.buffer, offset))
                for cell, piece in zip(self._small, self._transit.small):
                    cell.show(cell.views(piece, 0))
            self._versions = [version_of(look.tensor) for cell in self.cells for look in cell.looks]

    def hide(self, link: Link, *, write_back: WriteBack = WriteBack.CHANGED) -> None:
        """A unit has computed; the last one makes the tensors point at the host again, values written back as asked."""
        self._num_shown -= 1
        self._write_back = max(self._write_back, write_back)
        if self._num_shown == 0 and self._transit is not None:
            with outside_autograd():
                self._save_changes()
                self._write_back = WriteBack.CHANGED
                for cell, views in zip(self.cells, self._host_views):
                    cell.show(views)

    def drop(self, link: Link, *, was_read: bool) -> None:
        """A unit lets go; the last one frees the device copy."""
        self._num_fetched -= 1
        if self._num_fetched == 0 and self._transit is not None:
            (link.leave if was_read else link.abandon)(self._transit)
            self._transit = None

    def is_replaced(self) -> bool:
        """Whether someone gave a tensor other data while it was on the host."""
        return self._num_shown == 0 and any(
            cell.is_replaced(views) for cell, views in zip(self.cells, self._host_views)
        )

    def restore(self) -> None:
        """Put the bytes back on the devices they were found on, each cell in storage of its own again."""
        with outside_autograd():
            for cell, views in zip(self.cells, self._host_views):
                if not cell.is_replaced(views):
                    cell.restore()

    def _save_changes(self) -> None:
        versions = iter(self._versions)
        for cell, views in zip(self.cells, self._host_views):
            for look, view in zip(cell.looks, views):
                is_changed = next(versions) != version_of(look.tensor)
                is_wanted = self._write_back is WriteBack.ALL or (
                    self._write_back is WriteBack.BUFFERS and not isinstance(look.tensor, nn.Parameter)
                )
                if is_changed or is_wanted:
                    view.copy_(look.tensor.data)


def _goes_by_itself(cell: Cell) -> bool:
    """Small buffers hold flags, counts and indices whose values a model may ask for; there are few of them."""
    is_buffer = not any(isinstance(look.tensor, nn.Parameter) for look in cell.looks)
    return is_buffer and cell.num_bytes <= _SMALL_BYTES
