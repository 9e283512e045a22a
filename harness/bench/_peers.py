"""One placement, ours or another library's, on a simulated or a real card: peak, time, copied bytes, host bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["PEERS", "Figures", "Peer", "measure_simulated"]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A way to place a pipeline. plan: ours, as text; apply: another library's, given the pipeline and the device."""

    name: str
    plan: str | None = None
    apply: Callable[[Any, Any], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One call's figures. latency_s is the simulated clock's; copied_bytes counts both directions."""

    latency_s: float
    peak_allocated_bytes: int
    copied_bytes: int
    peak_host_bytes: int


def _group(pipeline: Any, device: Any, **options: Any) -> None:
    import torch

    pipeline.enable_group_offload(onload_device=device, offload_device=torch.device("cpu"), **options)


def _only_denoiser(pipeline: Any, device: Any, **options: Any) -> None:
    import torch

    for name, part in pipeline.components.items():
        if isinstance(part, torch.nn.Module) and name not in ("transformer", "unet"):
            part.to(device)
    denoiser = getattr(pipeline, "transformer", None) or pipeline.unet
    denoiser.enable_group_offload(onload_device=device, offload_device=torch.device("cpu"), **options)


def _everywhere(pipeline: Any, device: Any) -> None:
    import accelerate
    import torch

    for part in pipeline.components.values():
        if isinstance(part, torch.nn.Module):
            accelerate.cpu_offload(part, execution_device=device)


_BLOCK = {"offload_type": "block_level", "num_blocks_per_group": 1}
_LEAF = {"offload_type": "leaf_level"}


def _theirs(name: str, **options: Any) -> Peer:
    return Peer(name=f"diffusers: {name}", apply=lambda p, d: _group(p, d, **options))


def _ours(name: str, plan: str) -> Peer:
    return Peer(name=name, plan=plan)


_ENCODER = "{encoder}:group_offload(use_stream=true)"

PEERS = (
    _ours("resident", "resident"),
    Peer(name="diffusers: model offload", apply=lambda p, d: p.enable_model_cpu_offload(device=d)),
    Peer(name="diffusers: sequential offload", apply=lambda p, d: p.enable_sequential_cpu_offload(device=d)),
    Peer(name="accelerate: cpu_offload", apply=_everywhere),
    _theirs("group, blocks", **_BLOCK),
    _theirs("group, leaves", **_LEAF),
    _theirs("group, blocks, stream", use_stream=True, **_BLOCK),
    _theirs("group, leaves, stream", use_stream=True, **_LEAF),
    _theirs("group, blocks, stream, record", use_stream=True, record_stream=True, **_BLOCK),
    _theirs("group, leaves, stream, record", use_stream=True, record_stream=True, **_LEAF),
    Peer(
        name="diffusers: denoiser in blocks, stream", apply=lambda p, d: _only_denoiser(p, d, use_stream=True, **_BLOCK)
    ),
    _ours("model_offload", "model_offload"),
    _ours("model_offload, pinned", "model_offload(pin_memory=true)"),
    _ours("sequential_offload", "sequential_offload"),
    _ours("group_offload, leaves, stream", "group_offload(level=leaf_level,use_stream=true)"),
    _ours("group_offload, leaves, record", "group_offload(level=leaf_level,use_stream=true,record_stream=true)"),
    _ours("group_offload, blocks, stream", "group_offload(use_stream=true)"),
    _ours("group_offload of the denoiser, stream", "{denoiser}:group_offload(use_stream=true)"),
    _ours("block_residency, 6 GiB", f"{{denoiser}}:block_residency(resident_bytes=6GiB) + {_ENCODER}"),
    _ours("block_residency, 7 GiB", f"{{denoiser}}:block_residency(resident_bytes=7GiB) + {_ENCODER}"),
    _ours("block_residency, 11 GiB", f"{{denoiser}}:block_residency(resident_bytes=11GiB) + {_ENCODER}"),
    _ours("block_residency, 18 GiB", f"{{denoiser}}:block_residency(resident_bytes=18GiB) + {_ENCODER}"),
)
"""What is compared: every offload of diffusers and accelerate beside ours for the same purpose."""


def measure_simulated(peer: Peer, workload: Any, *, gpu: str, memory_bytes: int) -> Figures:
    """The second call's figures, when what is loaded once is loaded."""
    import torch

    from paretune.harness.simulator.simulation import Simulation

    with Simulation(gpu, memory_bytes=memory_bytes) as simulation, torch.no_grad():
        pipeline, device, machine = workload.load(), torch.device("sim", 0), simulation.machine
        module: Any = torch.get_device_module("sim")
        with _placed(peer, pipeline, device):
            workload.run(pipeline, device=device)
            module.synchronize()
            module.reset_peak_memory_stats()
            machine.traffic.reset()
            began = machine.host_s
            workload.run(pipeline, device=device)
            module.synchronize()
            return Figures(
                latency_s=machine.host_s - began,
                peak_allocated_bytes=module.max_memory_allocated(),
                copied_bytes=machine.traffic.h2d_bytes + machine.traffic.d2h_bytes,
                peak_host_bytes=machine.host_memory.total.peak_bytes,
            )


@contextmanager
def _placed(peer: Peer, pipeline: Any, device: Any) -> Iterator[None]:
    from paretune.strategies import Applied

    if peer.apply is not None:
        peer.apply(pipeline, device)
        yield
        return
    denoiser = "transformer" if "transformer" in pipeline.components else "unet"
    encoders = [name for name in ("text_encoder_3", "text_encoder_2", "text_encoder") if name in pipeline.components]
    plan = (peer.plan or "").format(denoiser=denoiser, encoder=encoders[0] if encoders else "text_encoder")
    with Applied(plan, pipeline, device):
        yield
