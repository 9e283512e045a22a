"""Warnings as values: what in a record deserves a second look, and what to change, given what is already set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paretune.harness.records import Kind, Record
from paretune.harness.stats import mad, median, outliers
from paretune.strategies.sizes import format_gib

__all__ = ["Advice", "advise", "notices"]

_SLOW_FIRST, _WIDE_SPREAD, _DRIFT = 1.5, 0.05, 0.05
_FRAGMENTED, _STALLED, _HOST_NEARLY_FULL = 1.10, 0.20, 0.90
_RELOADED = 1.5
_ENTRIES = ("decode", "encode")


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What was seen, with figures, and what to do about it."""

    say: str
    next: str

    def __str__(self) -> str:
        return f"{self.say}: {self.next}."


def advise(record: Record) -> Iterator[str]:
    """One sentence, with figures and a remedy, for each thing that looks wrong with a measurement."""
    return map(str, notices(record))


def notices(record: Record) -> Iterator[Advice]:
    """The same as values. Nothing is said about figures that are not known, nor what is already done."""
    for look in _LOOKS:
        yield from look(record)


def _timing(record: Record) -> Iterator[Advice]:
    samples = record.latency_s
    if record.kind is Kind.SIMULATED or len(samples) < 2:
        return
    centre = median(samples)
    if samples[0] > _SLOW_FIRST * centre:
        say = f"the first timed call took {samples[0] / centre:.1f} times the median"
        yield Advice(say=say, next=f"raise procedure.num_warmup above {len(record.warmup_s)}")
    if len(samples) >= 3 and mad(samples) > _WIDE_SPREAD * centre:
        say = f"the calls spread by {mad(samples) / centre:.0%} around their median"
        yield Advice(say=say, next=f"end what else runs here, or raise procedure.max_iterations above {len(samples)}")
    far = outliers(samples)
    if far:
        say = f"{len(far)} of {len(samples)} calls lie far outside (number {', '.join(str(i + 1) for i in far)})"
        yield Advice(say=say, next="they are kept; look for what ran then")
    if len(samples) >= 6:
        yield from _drift(samples)


def _drift(samples: tuple[float, ...]) -> Iterator[Advice]:
    third = len(samples) // 3
    change = median(samples[-third:]) / median(samples[:third]) - 1
    if abs(change) > _DRIFT and mad(samples) < abs(change) * median(samples):
        direction = "slower" if change > 0 else "faster"
        yield Advice(
            say=f"calls became {abs(change):.0%} {direction} while measuring",
            next="watch clocks and temperature, or raise procedure.num_warmup",
        )


def _memory(record: Record) -> Iterator[Advice]:
    allocated, reserved = record.peak_allocated_bytes, record.peak_reserved_bytes
    settings = record.environment.get("settings", {})
    configured = f"{settings.get('PYTORCH_ALLOC_CONF', '')}{settings.get('PYTORCH_CUDA_ALLOC_CONF', '')}"
    is_set = "expandable_segments" in configured
    if allocated and reserved and reserved > _FRAGMENTED * allocated and reserved - allocated > 2**28 and not is_set:
        say = f"the allocator reserved {reserved / allocated - 1:.0%} more than was alive"
        yield Advice(say=say, next="try PYTORCH_ALLOC_CONF=expandable_segments:True")
    host, limit = record.peak_host_bytes, _host_limit(record)
    if host and limit and host > _HOST_NEARLY_FULL * limit:
        say = f"host memory reached {host / limit:.0%} of what there is"
        yield Advice(say=say, next="set budget.host_memory, or offload to disk")


def _host_limit(record: Record) -> Any:
    device = record.environment.get("device", {})
    return device.get("host_memory_bytes") or record.environment.get("host_memory_bytes")


def _copies(record: Record) -> Iterator[Advice]:
    share = (record.transfers or {}).get("stall_share")
    if share is None or share < _STALLED:
        return
    say = f"the device waited for copies {share:.0%} of the time"
    if "offload" in record.plan and "use_stream=true" not in record.plan:
        yield Advice(say=say, next="try use_stream=true, which copies the next group meanwhile")
    elif "block_residency" not in record.plan:
        yield Advice(say=say, next="try block_residency, which keeps some blocks on the device")
    else:
        yield Advice(say=say, next="keep more blocks resident, or store weights in fewer bytes")


def _tiles(record: Record) -> Iterator[Advice]:
    """Tiles of a model whose weights an offload brings: each brings them anew unless they are kept."""
    for told in record.facts.values():
        for entry in _ENTRIES:
            call = told.get(entry) if isinstance(told, Mapping) else None
            if not isinstance(call, Mapping) or not call.get("num_groups"):
                continue
            groups, loads = call["num_groups"], call["num_group_loads"]
            if loads > _RELOADED * groups:
                say = f"{entry} brought {groups} groups of weights {loads} times for {call['num_tiles']} tiles"
                price = format_gib(call["group_bytes"])
                yield Advice(say=say, next=f"try vae_tiling(keep_weights=true), once each, if {price} more fit")


def _conditions(record: Record) -> Iterator[Advice]:
    seen = record.counters
    if seen.get("foreign_processes"):
        say = f"{seen['foreign_processes']} other processes used the device"
        yield Advice(say=say, next="end them and measure again; the figures may be theirs")
    if seen.get("throttled"):
        yield Advice(say=f"the device throttled ({', '.join(seen['throttled'])})", next="cool it and measure again")
    if seen.get("swapped_pages") or seen.get("killed_processes"):
        say = f"the machine ran short of memory ({seen.get('swapped_pages', 0)} pages swapped, "
        say += f"{seen.get('killed_processes', 0)} processes killed)"
        yield Advice(say=say, next="free memory and measure again; the figures are not reliable")
    settings = record.environment.get("settings", {})
    if record.device == "cpu" and record.kind is Kind.MEASURED and settings and "OMP_NUM_THREADS" not in settings:
        threads = record.environment.get("device", {}).get("num_threads", "a default number of")
        yield Advice(say=f"PyTorch chose {threads} threads", next="fix OMP_NUM_THREADS, so that runs can be compared")


def _output(record: Record) -> Iterator[Advice]:
    if record.is_complete and record.is_lossy and record.fidelity is None and record.kind is not Kind.SIMULATED:
        yield Advice(say="this plan may change the output and was not compared", next="set procedure.check_output")


_LOOKS: tuple[Callable[[Record], Iterator[Advice]], ...] = (_timing, _memory, _copies, _tiles, _conditions, _output)
