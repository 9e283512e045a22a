"""Run one trial in a process of its own: write it down, start the child, sleep, and say how it ended."""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from paretune.harness import children
from paretune.harness.blank import blank_record, kind_of
from paretune.harness.lock import locked
from paretune.harness.records import Outcome, Procedure, Record, Trial
from paretune.harness.worker import RESULT, STAGE, TRIAL
from paretune.strategies.plan import RESIDENT

__all__ = ["Isolation", "run_trial"]

Isolation = Literal["fork_server", "spawn"]

_LOG_TAIL_BYTES = 2000


def run_trial(trial: Trial, *, isolation: Isolation = "fork_server", folder: Path | None = None) -> Record:
    """Measure ``trial`` in a fresh process and return its record, whatever happened to the process.

    isolation: ``fork_server`` forks a process that has only imported libraries (milliseconds); ``spawn`` starts a new
    interpreter (seconds) and is taken anyway when the trial sets environment variables.
    folder: keeps the trial, its log and its result there; by default they are deleted.

    A trial that must be compared with a reference output which does not exist yet runs the reference plan first.
    """
    with _folder(folder) as place, _device_lock(trial.device):
        ready = _with_reference(trial, place, isolation)
        return _run(ready, place, isolation)


def _run(trial: Trial, place: Path, isolation: Isolation) -> Record:
    for name in (RESULT, STAGE):
        (place / name).unlink(missing_ok=True)
    (place / TRIAL).write_text(trial.to_json())
    before = _kernel_oom_kills()
    child = _start(trial, place, isolation)
    try:
        status = child.wait(trial.procedure.timeout_s)
    except BaseException:
        child.kill()
        raise
    if status is None:
        child.kill()
        said = f"did not end within {trial.procedure.timeout_s:g} s{_stood(place)}. Raise procedure.timeout_s."
        return _record(trial, place, Outcome.TIMEOUT, said, isolation)
    finished = _finished(place)
    if finished is not None:
        return dataclasses.replace(finished, environment={**finished.environment, "isolation": isolation})
    outcome, reason = _how_it_died(status, place, killed_by_kernel=_kernel_oom_kills() > before)
    return _record(trial, place, outcome, reason, isolation)


def _start(trial: Trial, place: Path, isolation: Isolation) -> children.Child:
    extra: Mapping[str, str] = trial.options.get("environment", {})
    return children.spawn(place, extra) if isolation == "spawn" or extra else children.fork(place)


def _finished(place: Path) -> Record | None:
    try:
        return Record.from_json((place / RESULT).read_text())
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _how_it_died(status: int, place: Path, *, killed_by_kernel: bool) -> tuple[Outcome, str]:
    tail = _log_tail(place)
    if killed_by_kernel:
        return Outcome.OOM_HOST, f"killed by the kernel because host memory ran out{_stood(place)}."
    if status < 0:
        name = signal.Signals(-status).name
        hint = " If nobody killed it, host memory may have run out." if status == -signal.SIGKILL else ""
        return Outcome.CRASHED, f"killed by {name}{_stood(place)}.{hint}{tail}"
    return Outcome.CRASHED, f"ended with status {status} and no readable result{_stood(place)}.{tail}"


def _record(trial: Trial, place: Path, outcome: Outcome, reason: str, isolation: Isolation) -> Record:
    from paretune.harness import environment

    blank = blank_record(trial, kind=kind_of(trial), outcome=outcome, reason=reason)
    return dataclasses.replace(blank, environment={**environment.describe(), "isolation": isolation})


def _stood(place: Path) -> str:
    try:
        return f" in phase {(place / STAGE).read_text()}"
    except OSError:
        return " before its first phase"


def _log_tail(place: Path) -> str:
    try:
        text = (place / "log.txt").read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError:
        return ""
    return f" Last words:\n{text}" if text else ""


def _kernel_oom_kills() -> int:
    """How often the kernel has killed for memory on this machine since it booted; 0 where it does not tell."""
    try:
        match = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


def _with_reference(trial: Trial, place: Path, isolation: Isolation) -> Trial:
    if trial.plan == RESIDENT or not trial.procedure.check_output or trial.device.startswith("sim:"):
        return trial
    path = Path(trial.reference) if trial.reference else place / "reference.safetensors"
    if not path.exists():
        for plan in (RESIDENT, "sequential_offload"):
            _run(_reference_trial(trial, path, plan), place, isolation)
            if path.exists():
                break
    return dataclasses.replace(trial, reference=str(path))


def _reference_trial(trial: Trial, path: Path, plan: str) -> Trial:
    once = Procedure(num_warmup=0, min_iterations=1, max_iterations=1, timeout_s=trial.procedure.timeout_s)
    return dataclasses.replace(
        trial, plan=plan, procedure=once, reference=str(path), device_memory_bytes=None, options={}
    )


@contextlib.contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    place = Path(tempfile.mkdtemp(prefix="paretune-trial-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _device_lock(device: str) -> Iterator[None]:
    """Two trials never share a real device: they would slow each other and take each other's memory."""
    if device.startswith("sim:"):
        yield
        return
    name = re.sub(r"[^a-z0-9]+", "-", device.lower())
    with locked(Path(tempfile.gettempdir()) / f"paretune-{getpass.getuser()}-{name}"):
        yield
