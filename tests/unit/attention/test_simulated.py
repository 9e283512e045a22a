"""On a simulated card every backend is charged by its entry: memory, time, and the card's own limits."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paretune.attention import BackendRefused, BackendUnavailable, availability, catalog, route
from paretune.harness.simulator import Simulation


class Layer(nn.Module):
    def forward(self, query, key, value, mask=None):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def run(gpu, backend, *, size=(1, 24, 4096, 128), dtype=torch.bfloat16):
    """Seconds and peak bytes of one call with everything else the same."""
    with Simulation(gpu), torch.no_grad():
        device = torch.get_device_module("sim")
        tensors = [torch.randn(size, device="sim", dtype=dtype) for _ in range(3)]
        start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
        with route(Layer(), backend, device="sim") as routed:
            before = device.memory_allocated()
            device.reset_peak_memory_stats()
            start.record()
            output = routed_call(routed, tensors)
            end.record()
            device.synchronize()
            assert output.shape == tensors[0].shape and output.device.type == "sim"
        return start.elapsed_time(end), device.max_memory_allocated() - before


def routed_call(routed, tensors):
    model = Layer()
    with route(model, routed.backend, device="sim"):
        return model(*tensors)


def test_the_math_path_keeps_its_scores_and_fused_kernels_do_not():
    math_s, math_bytes = run("rtx-4090", "_native_math")
    flash_s, flash_bytes = run("rtx-4090", "flash")
    scores = 24 * 4096 * 4096 * 4
    assert math_bytes >= scores > 10 * flash_bytes
    assert math_s > 2 * flash_s
    assert flash_bytes >= 24 * 4096 * (128 * 2 + 4), "the output and the log-sum-exp"


def test_charts_order_the_kernels_of_a_card():
    seconds = {name: run("rtx-4090", name)[0] for name in ("sage", "flash", "_native_efficient", "_native_math")}
    assert list(seconds) == sorted(seconds, key=seconds.get)
    hopper = {name: run("h100", name)[0] for name in ("_flash_3_hub", "_native_cudnn", "flash", "_native_efficient")}
    assert list(hopper) == sorted(hopper, key=hopper.get)


def test_packages_count_as_installed_but_the_card_decides():
    with Simulation("rtx-4090"):
        assert availability("sage", "sim") and availability("flash_hub", "sim")
        assert "this device has 8.9" in availability("sage_blackwell_hub", "sim").reason
        assert not availability("_native_npu", "sim")
        with pytest.raises(BackendUnavailable, match=r"8\.9"):
            route(Layer(), "_sage_qk_int8_pv_fp8_cuda_sm90", device="sim")
    with Simulation("rtx-5090"):
        assert availability("sage_blackwell_hub", "sim")


def test_limits_hold_on_the_simulated_card():
    with Simulation("rtx-4090"), torch.no_grad():
        model = Layer()
        half = torch.randn(1, 2, 64, 64, device="sim", dtype=torch.float16)
        with route(model, "flash", device="sim"):
            with pytest.raises(BackendRefused, match="float32"):
                model(half.float(), half.float(), half.float())
            with pytest.raises(BackendRefused, match="takes no mask"):
                model(half, half, half, torch.ones(1, 1, 64, 64, device="sim", dtype=torch.bool))


@pytest.mark.parametrize("name", [n for n, e in catalog().items() if {"any", "cuda"} & set(e.devices)])
def test_every_backend_of_nvidia_cards_can_be_simulated(name):
    gpu = "rtx-5090" if name == "sage_blackwell_hub" else "h100"
    seconds, nbytes = run(gpu, name, size=(1, 4, 1024, 64))
    assert seconds > 0 and nbytes >= 4 * 1024 * 64 * 2
