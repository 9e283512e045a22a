"""Who else is on a card: never ourselves, in whichever namespace the driver counts, and nobody only where it can be known."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch

from paretune.harness.devices.driver import Watch
from paretune.harness.devices.processes import PROC, most_seen, num_others, own_pids

ME, STRANGER, HIDDEN = os.getpid(), 1, 2**22 + 7
"""Every namespace has a process 1; no kernel gives out numbers above 2**22."""


def driver(*looks: Sequence[int] | None) -> Any:
    """NVML of a hot card that lists these processes, one list for each look; ``None`` is a driver that refuses to."""
    lists = iter(looks)

    def running(handle: Any) -> list[Any]:
        pids = next(lists)
        if pids is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in pids]

    def refuse(handle: Any) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

    return SimpleNamespace(
        NVML_CLOCK_SM=pynvml.NVML_CLOCK_SM,
        NVML_TEMPERATURE_GPU=pynvml.NVML_TEMPERATURE_GPU,
        nvmlDeviceGetComputeRunningProcesses=running,
        nvmlDeviceGetCurrentClocksEventReasons=lambda handle: 0x44,
        nvmlDeviceGetClockInfo=lambda handle, clock: 1980,
        nvmlDeviceGetTemperature=lambda handle, sensor: 61,
        nvmlDeviceGetPowerUsage=refuse,
    )


def folder(tmp_path: Path, *, pids: Sequence[int], namespace_pids: Sequence[int] = (ME,), link: int = ME) -> Path:
    """A ``/proc`` of a container (its pid namespace is not the machine's first) with these processes."""
    for pid in (*pids, link):
        (tmp_path / str(pid)).mkdir(exist_ok=True)
    (tmp_path / "self").symlink_to(str(link))
    (tmp_path / str(link) / "status").write_text("Name:\tpython\nNSpid:\t" + "\t".join(map(str, namespace_pids)) + "\n")
    (tmp_path / str(link) / "ns").mkdir()
    (tmp_path / str(link) / "ns" / "pid").write_text("")
    return tmp_path


def test_on_the_machine_itself_numbers_mean_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    first = (PROC / "self" / "ns" / "pid").stat().st_ino
    monkeypatch.setattr("paretune.harness.devices.processes._FIRST_NAMESPACE", first)
    own = own_pids()
    assert num_others([ME], own) == 0
    assert num_others([ME, STRANGER, HIDDEN], own) == 2
    assert num_others([STRANGER], own) == 1
    assert num_others([], own) is None, "we hold memory there, so a list without anybody is not the whole list"
    assert num_others(None, own) is None


def test_in_a_container_what_cannot_be_matched_is_unknown(tmp_path: Path) -> None:
    inside = folder(tmp_path, pids=[ME, STRANGER])
    own = own_pids(inside)
    assert num_others([HIDDEN], own, inside) is None, "ourselves, counted as the machine counts, or somebody else"
    assert num_others([0], own, inside) is None
    assert num_others([STRANGER], own, inside) is None
    assert num_others([], own, inside) is None
    assert num_others(None, own, inside) is None


def test_in_a_container_a_number_equal_to_ours_may_be_a_strangers(tmp_path: Path) -> None:
    inside = folder(tmp_path, pids=[ME])
    assert num_others([ME, HIDDEN], own_pids(inside), inside) is None


def test_a_translated_list_tells_who_else_is_in_the_container_and_not_who_is_outside(tmp_path: Path) -> None:
    inside = folder(tmp_path, pids=[ME, STRANGER])
    own = own_pids(inside)
    assert num_others([ME, STRANGER], own, inside) == 1
    assert num_others([ME, STRANGER, 0], own, inside) == 2
    assert num_others([ME], own, inside) is None


def test_numbers_in_outer_namespaces_are_ours_too(tmp_path: Path) -> None:
    outer = folder(tmp_path, pids=[41_000, STRANGER], namespace_pids=(41_000, 93, ME), link=41_000)
    own = own_pids(outer)
    assert own == {ME, 93, 41_000}
    assert num_others([41_000, STRANGER], own, outer) == 1


def test_what_we_started_is_ours() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert own_pids() >= {ME, child.pid} and STRANGER not in own_pids()
    finally:
        child.communicate(b"\n")
    assert child.pid not in own_pids()


@pytest.mark.parametrize(
    ("counts", "most"), [([0, 0], 0), ([0, 2], 2), ([3, None], 3), ([None, 0], None), ([0, None], None), ([], 0)]
)
def test_nobody_only_where_every_look_could_tell(counts: list[int | None], most: int | None) -> None:
    assert most_seen(counts) == most


@pytest.fixture
def proc(tmp_path: Path) -> Iterator[Path]:
    yield folder(tmp_path, pids=[ME, STRANGER])


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        (([ME], [ME, STRANGER]), 1),
        (([ME, STRANGER], None), 1),
        (([HIDDEN], [HIDDEN]), None),
        ((None, None), None),
    ],
)
def test_a_watch_tells_the_worst_it_saw(proc: Path, looks: Any, told: int | None) -> None:
    seen = Watch(torch.device("cuda"), driver(*looks), proc=proc).seen()
    assert seen["foreign_processes"] == told
    assert seen["throttled"] == ["thermal (hardware)"] and seen["sm_clock_mhz"] == 1980 and seen["temperature_c"] == 61
    assert seen["power_mw"] is None, "what a driver does not tell is not known"


def test_a_watch_remembers_what_passed_before_the_end(proc: Path) -> None:
    card = driver([ME], [ME])
    watch = Watch(torch.device("cuda"), card, proc=proc)
    watch.look()
    card.nvmlDeviceGetCurrentClocksEventReasons = lambda handle: 0x8
    card.nvmlDeviceGetClockInfo = lambda handle, clock: 900
    card.nvmlDeviceGetTemperature = lambda handle, sensor: 88
    watch.look()
    card.nvmlDeviceGetCurrentClocksEventReasons = lambda handle: 0
    watch.look()
    seen = watch.seen()
    assert seen["throttled"] == ["hardware slowdown", "thermal (hardware)"]
    assert (seen["sm_clock_mhz"], seen["temperature_c"]) == (900, 88)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="an accelerator is here")
def test_without_a_driver_nothing_is_told() -> None:
    assert Watch(torch.device("cpu")).seen() == {}
