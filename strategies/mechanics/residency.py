"""Keep each unit of one component on the device exactly while it is needed, whatever path a call takes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from paretune.strategies.errors import Unsupported
from paretune.strategies.mechanics.holdings import Grouping, Holdings
from paretune.strategies.mechanics.host_store import HostStore
from paretune.strategies.mechanics.link import Link
from paretune.strategies.mechanics.order import Order
from paretune.strategies.mechanics.staging import Staging
from paretune.strategies.mechanics.units import Frame, Keep, Unit

if TYPE_CHECKING:
    from paretune.strategies.mechanics.turns import Turns

__all__ = ["Residency", "residency_of"]

_IN_ORDER = (Keep.CALL, Keep.ALWAYS)
"""Units that come one after another during a call, so that the next one can be foreseen."""

_AT_WORK: weakref.WeakKeyDictionary[nn.Module, Residency] = weakref.WeakKeyDictionary()


def residency_of(component: nn.Module) -> Residency | None:
    """The residency at work on a component, if a plan placed its weights."""
    return _AT_WORK.get(component)


class Residency:
    """Which units of ``component`` are on the device.

    Every call of a module that needs a unit opens a frame, which holds the unit until the call returns or raises. A
    read of a weight inside a call (``child.weight`` without calling the child) holds the unit for the frame that is
    open. What is fetched ahead of need is predicted from earlier calls. While ``keeps_passing``, what a call needed
    stays until the outermost call returns. One lock a component, or a pipeline, keeps threads apart.
    """

    def __init__(
        self,
        component: nn.Module,
        grouping: Grouping,
        link: Link,
        *,
        store: HostStore | None = None,
        disk: HostStore | None = None,
        staging: Staging | None = None,
        look_ahead: int = 0,
    ) -> None:
        self.component = component
        self.link = link
        self.held = Holdings(component, grouping, store=store, disk=disk)
        self.staging = staging
        self.look_ahead = look_ahead if link.is_asynchronous else 0
        self.lock: Any = threading.RLock()
        self.turns: Turns | None = None
        self.framed: set[nn.Module] = set()
        self.on_read: Callable[[nn.Module], None] = lambda owner: None
        self._order = Order(())
        self._frames: list[Frame] = []
        self._depth = 0
        self._thread: int | None = None
        self._coming: list[Unit] = []
        self._idle: list[Unit] = []
        self.keeps_passing = False
        self._is_stale = False
        self._is_checked = False
        self._is_closed = False

    @property
    def units(self) -> list[Unit]:
        """The units, in the order of their groups."""
        return self.held.units

    def start(self) -> None:
        """Form the units and bring their weights to the host. Raises ``Unsupported`` before anything is changed."""
        if residency_of(self.component) is not None:
            raise Unsupported(f"{type(self.component).__name__} is placed by a plan already. Undo that plan first.")
        self._form_units()
        _AT_WORK[self.component] = self

    def _form_units(self) -> None:
        self.held.form()
        self._order = Order([unit for unit in self.units if unit.group.keep in _IN_ORDER])
        if self.link.ring is not None:
            self.link.ring.slot_bytes = self.held.largest_passing_bytes

    @property
    def resident_bytes(self) -> int:
        """Bytes of weights on the device or on their way there now."""
        return sum(bundle.num_bytes for bundle in self.held.bundles if bundle.is_on_device)

    @property
    def is_active(self) -> bool:
        """Whether this thread is inside a call into the component or into its pipeline."""
        here = threading.get_ident()
        return self._thread == here or (self.turns is not None and self.turns.is_running(here))

    @contextmanager
    def entry(self) -> Iterator[None]:
        """A call into the component from outside; whatever happens inside, afterwards nothing is left half-done."""
        self._enter()
        height = len(self._frames)
        try:
            yield
        finally:
            self._unwind(height)
            self._exit()

    def begin(self, module: nn.Module) -> None:
        """A hooked module is about to run: bring what it needs and hold it."""
        if self.holds(module):
            return
        self._enter()
        self._check_units()
        frame = Frame(module=module)
        self._frames.append(frame)
        for unit in self.held.by_trigger.get(module, ()):
            self._acquire(unit, frame)
        own = self.held.needs.get(module)
        if own is not None and own not in frame.held:
            self._acquire(own, frame)

    def holds(self, module: nn.Module) -> bool:
        """Whether a call of this module now would find what it needs in place, and change nothing here."""
        is_inside = self._depth and self._thread == threading.get_ident()
        if not is_inside or module in self.held.by_trigger or module in self.framed or module is self.component:
            return False
        unit = self.held.needs.get(module)
        return unit is None or unit.num_uses > 0

    def end(self, module: nn.Module) -> None:
        """A hooked module has returned or raised; calls inside it that were cut short are closed as well."""
        if self._thread != threading.get_ident():
            return
        for height in range(len(self._frames) - 1, -1, -1):
            if self._frames[height].module is module:
                self._unwind(height)
                return

    def need(self, owner: nn.Module) -> None:
        """A weight of ``owner`` is read inside a call: bring its unit, and hold it for the frame that is open."""
        unit = self.held.needs.get(owner)
        if unit is None or (unit.is_shown and unit.num_uses > 0):
            return
        if self._frames:
            self._acquire(unit, self._frames[-1])
            self.on_read(owner)
        else:
            if self.turns is not None:
                self.turns.begin(self)
            self._check_units()
            unit = self.held.needs[owner]
            self._bring(unit)
            unit.is_edited = True

    def yield_device(self, *, evict: bool) -> None:
        """Another component needs the device: give up what only waits here, and with ``evict`` what would stay."""
        with self.lock:
            self._cancel_coming()
            for unit in self.units:
                if unit.num_uses == 0 and (evict or unit.group.keep not in (Keep.ALWAYS,)):
                    unit.send_away(self.link)
            self.link.drain()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The component's tensors are about to be replaced (``.to(dtype)``): everything goes to the host before."""
        with self.lock:
            if self._frames:
                raise RuntimeError(f"{type(self.component).__name__} cannot be converted while it runs.")
            self.yield_device(evict=True)
            yield

    def mark_stale(self) -> None:
        """Tensors were replaced or added; units are formed anew before the next call."""
        self._is_stale = True

    def close(self) -> None:
        """Give every tensor back as it was found and let go of all buffers; the second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if residency_of(self.component) is self:
            del _AT_WORK[self.component]
        self._send_all_home()
        if self.staging is not None:
            self.staging.close()
        self.held.close()

    def _send_all_home(self) -> None:
        self._frames.clear()
        self._cancel_coming()
        for unit in self.units:
            unit.is_edited |= unit.group.keep is Keep.ALWAYS
            unit.send_away(self.link)
        self.link.settle()
        self.link.drain()
        self.held.restore()

    def _enter(self) -> None:
        self.lock.acquire()
        self._depth += 1
        if self._depth == 1:
            self._thread = threading.get_ident()
            self._is_checked = False
            if self.turns is not None:
                self.turns.begin(self)

    def _exit(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._settle()
            self._thread = None
        self.lock.release()

    def _unwind(self, height: int) -> None:
        while len(self._frames) > height:
            for unit in reversed(self._frames.pop().held):
                self._release(unit)
            self._exit()

    def _acquire(self, unit: Unit, frame: Frame) -> None:
        self._bring(unit)
        unit.num_uses += 1
        frame.held.append(unit)
        if unit.group.keep in _IN_ORDER:
            self._order.visit(unit)
        self._fetch_ahead()

    def _release(self, unit: Unit) -> None:
        unit.num_uses -= 1
        if unit.num_uses or unit.group.keep is not Keep.CALL or self.keeps_passing:
            return
        if len(unit.group.triggers) == 1:
            unit.send_away(self.link)
        else:
            self._idle.append(unit)

    def _bring(self, unit: Unit) -> None:
        if unit.is_shown:
            return
        self._send_idle_away()
        if unit in self._coming:
            self._coming.remove(unit)
        elif unit.group.keep is Keep.CALL:
            self._cancel_coming()
        unit.fetch(self.link, self.staging)
        unit.show(self.link)

    def _fetch_ahead(self) -> None:
        if len(self._coming) >= self.look_ahead:
            return
        for unit in self._order.ahead():
            if not unit.is_fetched:
                unit.fetch(self.link, self.staging)
                self._coming.append(unit)
                if len(self._coming) >= self.look_ahead:
                    return

    def _send_idle_away(self) -> None:
        for unit in self._idle:
            if unit.num_uses == 0:
                unit.send_away(self.link)
        self._idle.clear()

    def _cancel_coming(self) -> None:
        for unit in self._coming:
            unit.send_away(self.link)
        self._coming.clear()

    def _settle(self) -> None:
        self._order.end_pass()
        self._cancel_coming()
        self._idle.clear()
        in_turn = self.turns is not None
        for unit in self.units:
            unit.num_uses = 0
            stays = unit.group.keep is Keep.ALWAYS or (unit.group.keep is Keep.TURN and in_turn)
            if unit.is_fetched and not stays:
                unit.send_away(self.link)
        self.link.drain()

    def _check_units(self) -> None:
        """Before the first use in a call from outside: form the units anew if tensors were replaced since the last one."""
        if not self._is_checked:
            self._is_checked = True
            if self._is_stale or self.held.are_replaced:
                self._is_stale = False
                self._send_all_home()
                self._form_units()
