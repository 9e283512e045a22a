"""Tell an observer where a pipeline's call stands, through wrappers that are gone when the call ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from paretune.strategies.parts import Parts, role_of

if TYPE_CHECKING:
    from paretune.harness.workloads.base import Observer

__all__ = ["PIPELINE_PHASES", "observed"]

PIPELINE_PHASES = ("encode", "denoise", "decode")

_MISSING = object()


@contextmanager
def observed(pipeline: Any, observer: Observer | None) -> Iterator[None]:
    """While active, `observer` hears of phases and denoising steps of `pipeline`.

    `encode` begins at once (text encoders, and the autoencoder's encoder where an image comes in), `denoise` with the
    first call of a denoiser, `decode` with the autoencoder's `decode` after it. A step begins with the first denoiser
    call after the scheduler's last `step`: two calls per step (guidance in turn) are one step.
    """
    if observer is None:
        yield
        return
    teller = _Teller(observer)
    with ExitStack() as undo:
        for name, module in Parts.of(pipeline).modules.items():
            if role_of(name) == "denoiser" or name.startswith("controlnet"):
                _listen_to_calls(module, teller.denoiser_begins, undo)
            elif role_of(name) == "vae":
                _listen_to_method(module, "decode", teller.decode_begins, undo)
        _listen_to_method(getattr(pipeline, "scheduler", None), "step", teller.step_ends, undo)
        teller.enter("encode")
        yield


class _Teller:
    """Turns what is called into phases and steps, each told once."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._phase = ""
        self._is_between_steps = True

    def enter(self, phase: str) -> None:
        if phase != self._phase:
            self._phase = phase
            self._observer.phase(phase)

    def denoiser_begins(self) -> None:
        self.enter("denoise")
        if self._is_between_steps:
            self._is_between_steps = False
            self._observer.step()

    def step_ends(self) -> None:
        self._is_between_steps = True

    def decode_begins(self) -> None:
        self.enter("decode")


@cache
def _listening(kind: Any) -> Any:
    """A subclass of a module's class whose calls are announced; one per class, so that compiled code stays valid.

    A forward hook would do, but a compiled module traces its hooks and compiles anew when they change.
    """

    def announce(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.__dict__["_paretune_call_begins"]()
        return kind.__call__(self, *args, **kwargs)

    names = {"__call__": announce, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind)(kind.__name__, (kind,), names)


def _listen_to_calls(module: Any, tell: Callable[[], None], undo: ExitStack) -> None:
    kind: Any = type(module)
    module.__dict__["_paretune_call_begins"] = tell
    undo.callback(module.__dict__.pop, "_paretune_call_begins")
    module.__class__ = _listening(kind)
    undo.callback(setattr, module, "__class__", kind)


def _listen_to_method(target: Any, name: str, tell: Callable[[], None], undo: ExitStack) -> None:
    """Announce calls of `target.name`, a method that runs outside `forward`, and put back what stood there before."""
    if not callable(getattr(target, name, None)):
        return
    before = target.__dict__.get(name, _MISSING)
    original = getattr(target, name)

    def announce(*args: Any, **kwargs: Any) -> Any:
        tell()
        return original(*args, **kwargs)

    target.__dict__[name] = announce
    undo.callback(_restore, target, name, before)


def _restore(target: Any, name: str, before: object) -> None:
    if before is _MISSING:
        del target.__dict__[name]
    else:
        target.__dict__[name] = before
