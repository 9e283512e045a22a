"""Does a backend run here and agree with float64 math? Asked in a child process: a wrong kernel can take it down."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from paretune.attention.available import availability
from paretune.attention.catalog import Entry, entry

__all__ = ["Probe", "probe"]

_CHILD = (sys.executable, "-m", "paretune.attention.probe_child")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a probe found. ``reason`` says why it is not ok; ``dtypes`` are those that agreed with the reference.

    is_repeatable: whether two runs of one call gave the same bits, None when nothing ran.
    """

    name: str
    device: str
    ok: bool
    reason: str = ""
    dtypes: tuple[str, ...] = ()
    largest_error: float | None = None
    is_repeatable: bool | None = None

    def __bool__(self) -> bool:
        return self.ok


def probe(
    name: str,
    device: str = "cuda",
    *,
    timeout_s: float = 120.0,
    cache: Path | None = None,
    child: Sequence[str] = _CHILD,
) -> Probe:
    """Run small random cases of a backend in a child process and compare them with float64 math.

    A child that hangs, exits or is killed is an answer, not an error. Answers are kept per machine, device and versions
    in ``cache`` (by default the user's cache folder; a failure that may pass, such as a time-out, is not kept). Raises
    ``ValueError`` for an unknown name.
    """
    chosen = entry(name)
    here = availability(name, device)
    if not here:
        return Probe(name=name, device=device, ok=False, reason=str(here).removeprefix("no: "))
    path = (cache or _cache_folder()) / f"{_fingerprint(chosen, device)}.json"
    if path.exists() and (kept := _read(path)):
        return kept
    found, lasting = _ask(chosen, device, timeout_s, child)
    if lasting:
        _write(path, found)
    return found


def _ask(chosen: Entry, device: str, timeout_s: float, child: Sequence[str]) -> tuple[Probe, bool]:
    """The child's answer, and whether it would be the same next time."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        try:
            done = subprocess.run(
                [*child, chosen.name, device, str(result)], capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return _failed(chosen, device, f"no answer within {timeout_s:.0f} s."), False
        answer = _read(result)
        if answer is not None:
            return answer, True
    last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
    how = f"was killed by signal {-done.returncode}" if done.returncode < 0 else f"exited with {done.returncode}"
    return _failed(chosen, device, f"the process that called it {how}: {last[0]}"), done.returncode >= 0


def _failed(chosen: Entry, device: str, reason: str) -> Probe:
    return Probe(name=chosen.name, device=device, ok=False, reason=reason)


def _read(path: Path) -> Probe | None:
    """The stored answer; None for a file that is missing, torn or of another shape."""
    try:
        fields = json.loads(path.read_text())
        return Probe(**{**fields, "dtypes": tuple(fields["dtypes"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, found: Probe) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(asdict(found), file)
    Path(file.name).replace(path)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "paretune" / "probes"


def _fingerprint(chosen: Entry, device: str) -> str:
    """Everything that could change the answer: machine, card, driver-facing versions, and the entry itself."""
    import torch

    kind = torch.device(device).type
    card = torch.cuda.get_device_name(device) if kind == "cuda" else platform.processor()
    names = ("torch", "triton", "kernels", *(package.distribution for package in chosen.packages))
    facts = [platform.node(), platform.machine(), card, device, repr(chosen), torch.version.cuda, torch.version.hip]
    text = json.dumps([*facts, *((name, _version(name)) for name in names)])
    return f"{chosen.name}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
