"""What users may ask of a workload, and how what they may not ask is refused."""

from __future__ import annotations

import pytest

from paretune.harness.workloads import WorkloadError, workload_named, workload_names
from paretune.harness.workloads.request import read_request


def test_overrides_get_the_names_of_the_pipelines_arguments() -> None:
    request = read_request({"name": "sdxl", "steps": 8, "guidance": 2.0, "call": {"eta": 0.1}, "batch": 3})
    assert request.call == {"num_inference_steps": 8, "guidance_scale": 2.0, "eta": 0.1}
    assert request.batch_size == 3


def test_the_resolved_description_says_what_will_be_run() -> None:
    spec = workload_named({"name": "flux.1-schnell", "steps": 2, "seed": 7, "dtype": "float16"}).spec
    assert (spec["steps"], spec["height"], spec["width"], spec["seed"]) == (2, 768, 1360, 7)
    assert (spec["pipeline"], spec["dtype"], spec["batch_size"]) == ("FluxPipeline", "float16", 1)
    assert spec["max_sequence_length"] == 256


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "sdxl", "stepz": 4}, "workload.stepz: unknown key. Did you mean `steps`?"),
        ({"name": "sdxl", "steps": 0}, "workload.steps: 0 is not a positive whole number"),
        ({"name": "sdxl", "steps": True}, "workload.steps: True is not a positive whole number"),
        ({"name": "sdxl", "height": "1024"}, "workload.height: '1024' is not"),
        ({"name": "sdxl", "seed": -1}, "workload.seed: -1"),
        ({"name": "sdxl", "dtype": "fp16"}, "workload.dtype: 'fp16' is not one of float32"),
        ({"name": "sdxl", "call": 3}, "workload.call: a mapping"),
        ({"steps": 3}, "workload.name: missing"),
        ("sdxxl", "Did you mean 'sdxl'?"),
        ("no/such.yaml", "there is no architecture file 'no/such.yaml'"),
    ],
)
def test_mistakes_are_refused_with_the_key(asked: object, said: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        workload_named(asked)  # type: ignore[arg-type]
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "sdxl-tiny", "num_frames": 4}, "workload.num_frames: the call does not take it"),
        ({"name": "sdxl-tiny", "variant": "fp16"}, "workload.variant"),
        ({"name": "flux-transformer-tiny", "steps": 4}, "workload.steps: the call does not take it"),
    ],
)
def test_what_only_the_loaded_call_can_tell_is_refused_when_it_is_loaded(asked: dict[str, object], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        workload_named(asked).load()


def test_names_are_found_without_importing_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from paretune.harness.workloads import workload_named, workload_names\n"
        "[workload_named(name).spec for name in workload_names()]\n"
        "print('torch' in sys.modules, 'diffusers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    assert "flux.1-dev" in workload_names()


def test_a_picture_that_comes_in_takes_the_asked_size() -> None:
    import torch

    workload = workload_named({"name": "sdxl-img2img-tiny", "height": 32, "width": 48})
    assert (workload.spec["height"], workload.spec["width"]) == (32, 48)
    assert workload.run(workload.load(), device=torch.device("cpu")).shape == (1, 3, 32, 48)
    assert workload_named("sdxl-img2img-tiny").spec["height"] == 64


def test_a_batch_of_prompts() -> None:
    import torch

    workload = workload_named({"name": "sd1.5-tiny", "batch_size": 3, "steps": 1, "height": 32, "width": 32})
    assert workload.run(workload.load(), device=torch.device("cpu")).shape == (3, 3, 32, 32)
    with pytest.raises(WorkloadError, match=r"workload\.batch_size: 3 does not fit the 2 entries"):
        odd = workload_named({"name": "sd1.5-tiny", "batch_size": 3, "prompt": ["a", "b"]})
        odd.run(odd.load(), device=torch.device("cpu"))
