"""Offloading real pipelines at full size on a simulated card: the order of peaks, and ours beside the library's."""

from __future__ import annotations

from typing import Any

import pytest

ORDER = (
    "resident",
    "model_offload",
    "group_offload(num_blocks_per_group=4)",
    "group_offload",
    "group_offload(level=leaf_level)",
)


class Peaks:
    """Peak allocated bytes by phase."""

    def __init__(self, module: Any) -> None:
        self._module, self._phase = module, ""
        self.bytes: dict[str, int] = {}

    def phase(self, name: str) -> None:
        self.close()
        self._phase = name
        self._module.reset_peak_memory_stats()

    def step(self) -> None:
        pass

    def close(self) -> None:
        if self._phase:
            self.bytes[self._phase] = self._module.max_memory_allocated()


def peaks_of_denoising(name: str) -> list[int]:
    import torch

    from paretune.harness.simulator import Simulation
    from paretune.harness.workloads import workload_named
    from paretune.strategies import Applied

    workload = workload_named({"name": name, "steps": 1})
    found = []
    with Simulation("rtx-4090", memory_bytes=80 << 30), torch.no_grad():
        pipeline, device = workload.load(), torch.device("sim", 0)
        for plan in ORDER:
            peaks = Peaks(torch.get_device_module("sim"))
            with Applied(plan, pipeline, device):
                workload.run(pipeline, device=device, observer=peaks)
                peaks.close()
            found.append(peaks.bytes["denoise"])
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["flux.1-dev", "sdxl"])
def test_the_smaller_the_groups_the_lower_the_peak_of_denoising(name: str) -> None:
    found = peaks_of_denoising(name)
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == len(found)


def test_ours_needs_no_more_memory_or_time_than_the_library() -> None:
    from paretune.harness.bench._peers import PEERS, measure_simulated
    from paretune.harness.workloads import workload_named

    workload = workload_named({"name": "sdxl", "steps": 2})
    wanted = ("diffusers: model offload", "model_offload")
    theirs, ours = (
        measure_simulated(peer, workload, gpu="rtx-4090", memory_bytes=80 << 30)
        for name in wanted
        for peer in PEERS
        if peer.name == name
    )
    assert ours.peak_allocated_bytes <= theirs.peak_allocated_bytes
    assert ours.latency_s <= theirs.latency_s
    assert ours.copied_bytes < theirs.copied_bytes
