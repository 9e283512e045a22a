"""Quantising straight from a checkpoint: the model that quantising after loading gives, with the packed model's peak."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from paretune.harness.simulator import Simulation
from paretune.strategies import Applied, Quantize, Unsupported
from paretune.strategies.mechanics.checkpoint import save_sharded
from paretune.strategies.mechanics.packing_formats import FORMATS
from paretune.strategies.mechanics.shard_files import CheckpointError

REAL = [name for name, chosen in FORMATS.items() if chosen.pack is not None]


class Tied(nn.Module):
    """Two layers with one weight, one whose rows divide into no group, a norm, a buffer, and a declared dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(256, 256), nn.Linear(256, 256, bias=False)
        self.second.weight = self.first.weight
        self.norm, self.last = nn.LayerNorm(256), nn.Linear(256, 130)
        self.odd = nn.Linear(130, 3)
        self.register_buffer("shift", torch.ones(256))

    @property
    def dtype(self) -> torch.dtype:
        return next(p.dtype for p in self.parameters() if p.is_floating_point())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.second(torch.relu(self.first(x))) + self.shift)
        answer: torch.Tensor = self.odd(self.last(x))
        return answer


def saved(folder: Path, dtype: torch.dtype = torch.float32) -> Tied:
    torch.manual_seed(3)
    model = Tied().to(dtype).eval()
    save_sharded(model, folder, max_shard_size="200KB")
    return model


def on_meta() -> Tied:
    with torch.device("meta"):
        return Tied().eval()


@pytest.mark.parametrize("method", REAL)
def test_it_is_the_model_that_quantising_after_loading_gives(method: str, tmp_path: Path) -> None:
    whole, streamed = saved(tmp_path, torch.bfloat16), on_meta()
    facts = Quantize(method=method).load(streamed, tmp_path)
    x = torch.randn(4, 256, dtype=torch.bfloat16)
    with torch.no_grad(), Applied([Quantize(method=method)], whole, "cpu") as applied:
        assert torch.equal(streamed(x), whole(x))
        assert dict(facts) == dict(next(iter(applied.facts.values())))
        assert streamed.state_dict().keys() == whole.state_dict().keys()
    assert streamed.first.weight_codes is streamed.second.weight_codes
    assert streamed.dtype is torch.bfloat16 and not any(p.is_meta for p in streamed.parameters())


def test_the_dtype_asked_for_is_the_one_it_computes_in(tmp_path: Path) -> None:
    model = on_meta()
    saved(tmp_path)
    Quantize(method="nf4").load(model, tmp_path, dtype=torch.bfloat16)
    assert model.dtype is model.first.weight.dtype is model.norm.weight.dtype is torch.bfloat16
    assert model(torch.randn(1, 256, dtype=torch.bfloat16)).dtype is torch.bfloat16


def test_it_combines_with_offloading(tmp_path: Path) -> None:
    model, x = on_meta(), torch.randn(2, 256)
    saved(tmp_path)
    Quantize().load(model, tmp_path)
    with torch.no_grad():
        plain = model(x)
        with Applied("group_offload(level=leaf_level)", model, "cpu"):
            assert torch.equal(model(x), plain)


def test_a_library_packs_layer_by_layer_too(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    ours, theirs, x = on_meta(), on_meta(), torch.randn(2, 256, dtype=torch.bfloat16)
    saved(tmp_path, torch.bfloat16)
    Quantize().load(ours, tmp_path)
    Quantize(engine="torchao").load(theirs, tmp_path)
    assert type(theirs.last.weight).__module__.startswith("torchao")
    with torch.no_grad():
        torch.testing.assert_close(theirs(x), ours(x), rtol=0.1, atol=0.1)


def test_what_is_missing_is_named_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not hold"):
        Quantize().load(on_meta(), tmp_path)
    saved(tmp_path)
    with pytest.raises(Unsupported, match="gguf_q4_k"):
        Quantize(method="gguf_q4_k").load(on_meta(), tmp_path)
    for shard in list(tmp_path.glob("*.safetensors"))[:1]:
        shard.unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        Quantize().load(on_meta(), tmp_path)


def test_the_simulated_load_peak_is_the_packed_model_and_one_tensor(tmp_path: Path) -> None:
    with Simulation("rtx-4090") as sim, torch.no_grad():
        model = nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(12))).bfloat16()
        save_sharded(model, tmp_path, max_shard_size="100MB")
        tensor, wide = 4096 * 4096 * 2, 12 * 4096 * 4096 * 2
        del model
        with torch.device("meta"):
            empty = nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(12)))
        card, host = sim.machine.cards[0].ledger, sim.machine.host_memory.total
        sim.machine.begin_phase("load")
        before = host.now_bytes
        Quantize(method="nf4").load(empty, tmp_path, device="sim")
        packed = card.now_bytes
        assert packed < 0.3 * wide
        assert card.peak_bytes <= packed + 1.1 * tensor
        assert host.peak_bytes <= before + 1.1 * tensor


PROGRAM = """
import json, re, sys
import torch
from torch import nn
from paretune.strategies import Quantize
from paretune.strategies.mechanics.checkpoint import load_sharded

def status(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

how, folder = sys.argv[1:]
with torch.device("meta"):
    model = nn.Sequential(*(nn.Linear(2048, 2048, bias=False) for _ in range(16)))
small = nn.Sequential(nn.Linear(256, 256))
Quantize(method="gguf_q4_0")._packing(torch.device("cpu"), lambda f: None)({"0": small[0]})  # imports and first calls
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
if how == "streamed":
    Quantize(method="gguf_q4_0").load(model, folder)
else:
    load_sharded(model, folder)
    Quantize(method="gguf_q4_0").apply(model, torch.device("cpu"), lambda f: None)
print(json.dumps({"peak": status("VmHWM") - before, "after": status("VmRSS") - before}))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are reset through Linux's proc")
def test_the_measured_load_peak_is_near_the_packed_model(tmp_path: Path) -> None:
    save_sharded(
        nn.Sequential(*(nn.Linear(2048, 2048, bias=False) for _ in range(16))), tmp_path, max_shard_size="70MB"
    )
    wide, tensor = 16 * 2048 * 2048 * 4, 2048 * 2048 * 4

    def peak(how: str) -> int:
        told = subprocess.run(
            [sys.executable, "-c", PROGRAM, how, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
        )
        return int(json.loads(told.stdout)["peak"])

    packed = wide * 4.5 / 32
    assert packed < peak("streamed") < packed + 5 * tensor < 0.5 * wide < wide < peak("whole")
