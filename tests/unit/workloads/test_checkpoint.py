"""Checkpoints: loaded from safetensors only, without code of their own unless asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.checkpoints import save_checkpoint
from support.following import Following

from paretune.harness.workloads import WorkloadError, workload_named

CPU = torch.device("cpu")
CALL = {"height": 64, "width": 64, "steps": 2}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("checkpoint"), "flux.1-dev-tiny", max_shard_size="1MB")


def linked(checkpoint: Path, folder: Path) -> Path:
    """A copy of the checkpoint's tree whose files are links, so that a test can change it cheaply."""
    for file in checkpoint.rglob("*"):
        place = folder / file.relative_to(checkpoint)
        if file.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(file)
    return folder


def test_a_folder_gives_the_output_of_the_pipeline_it_was_saved_from(checkpoint: Path) -> None:
    original = workload_named({"name": "flux.1-dev-tiny", "steps": 2, "prompt": "A fox"})
    arguments = {"guidance_scale": 3.5, "max_sequence_length": 16}
    workload = workload_named({"name": str(checkpoint), "prompt": "A fox", **CALL, **arguments})
    assert workload.spec["pipeline"] == "FluxPipeline"
    wanted = original.run(original.load(), device=CPU)
    following = Following()
    output = workload.run(workload.load(), device=CPU, observer=following)
    torch.testing.assert_close(output, wanted, atol=1e-5, rtol=0.0)  # mapped weights are aligned differently
    assert following.log == ["encode", "denoise", "step", "step", "decode"]


def test_one_model_of_a_checkpoint_runs_on_made_inputs(checkpoint: Path) -> None:
    latent = {"kind": "noise", "shape": [1, 16, 8, 8]}
    asked = {"name": str(checkpoint), "subfolder": "vae", "method": "decode", "inputs": {"z": latent}}
    workload = workload_named(asked)
    output = workload.run(workload.load(), device=CPU)
    assert output.shape == (1, 3, 64, 64)
    assert workload.phases == ("forward",)


def test_pickles_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    folder = linked(checkpoint, tmp_path)
    weights = next((folder / "text_encoder").glob("*.safetensors"))
    weights.unlink()
    (folder / "text_encoder" / "pytorch_model.bin").write_bytes(b"anything")
    with pytest.raises(WorkloadError, match=r"pytorch_model\.bin.*only safetensors"):
        workload_named(str(folder)).load()


def test_code_in_the_folder_runs_only_when_asked_for(checkpoint: Path, tmp_path: Path) -> None:
    folder = linked(checkpoint, tmp_path)
    index = json.loads((folder / "model_index.json").read_text())
    index["_class_name"] = ["my_pipeline", "MyPipeline"]
    (folder / "model_index.json").unlink()
    (folder / "model_index.json").write_text(json.dumps(index))
    (folder / "my_pipeline.py").write_text("raise SystemExit('code of the checkpoint ran')\n")
    with pytest.raises(WorkloadError, match=r"my_pipeline\.py.*trust_remote_code=true"):
        workload_named(str(folder)).load()


def test_a_folder_that_is_no_checkpoint_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"neither model_index\.json nor config\.json"):
        workload_named(str(tmp_path)).load()
