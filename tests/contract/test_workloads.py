"""What every shipped workload promises: published sizes, a small sibling, a call that repeats bit by bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from support.following import Following

from paretune.harness.workloads import workload_named, workload_names
from paretune.harness.workloads.architecture import load_architecture
from paretune.harness.workloads.assemble import num_parameters
from paretune.harness.workloads.phases import PIPELINE_PHASES

CPU = torch.device("cpu")
TINY = [name for name in workload_names() if name.endswith("-tiny")]
FULL = [name for name in workload_names() if not name.endswith("-tiny")]
PIPELINES = [name for name in TINY if load_architecture(name).pipeline is not None]


def first(output: Any) -> torch.Tensor:
    tensor = output[0] if isinstance(output, tuple) else output
    assert isinstance(tensor, torch.Tensor)
    return tensor.float()


@pytest.mark.parametrize("name", FULL)
def test_has_as_many_parameters_as_published(name: str) -> None:
    architecture = load_architecture(name)
    counts = num_parameters(architecture)
    published = {key: architecture.components[key].parameters for key in counts}  # type: ignore[union-attr]
    assert counts == published


@pytest.mark.parametrize("name", FULL)
def test_has_a_small_sibling_of_the_same_classes(name: str) -> None:
    full, tiny = load_architecture(name), load_architecture(f"{name}-tiny")
    assert tiny.pipeline == full.pipeline
    assert _classes(tiny) == _classes(full)
    assert (tiny.dtype, full.source) == ("float32", tiny.source)


def _classes(architecture: Any) -> dict[str, str | None]:
    return {key: part and part.class_name for key, part in architecture.components.items()}


@pytest.mark.parametrize("name", TINY)
def test_a_call_is_finite_varied_and_repeats_bit_by_bit(name: str) -> None:
    output, following = reference(name)
    assert torch.isfinite(output).all()
    assert output.std() > 0.02
    workload = workload_named(name)
    loaded = workload.load()
    assert torch.equal(output, first(workload.run(loaded, device=CPU)))
    assert torch.equal(output, first(workload.run(loaded, device=CPU)))
    assert not any(key.startswith("_paretune") for module in _modules(loaded) for key in module.__dict__)
    told = [entry for entry in following.log if entry != "step"]
    assert tuple(told) == workload.phases
    assert following.log.count("step") == _expected_steps(workload.spec)


@cache
def reference(name: str) -> tuple[torch.Tensor, Following]:
    """The output of the first call of a fresh model, and what its observer was told."""
    workload, following = workload_named(name), Following()
    return first(workload.run(workload.load(), device=CPU, observer=following)), following


def _expected_steps(spec: Any) -> int:
    if spec["pipeline"] is None:
        return 1
    scheduler = load_architecture(spec["name"]).components["scheduler"]
    repeats_first = scheduler is not None and scheduler.class_name == "PNDMScheduler"
    return int(spec["steps"] * spec.get("strength", 1.0)) + repeats_first


def _modules(loaded: Any) -> list[torch.nn.Module]:
    parts = getattr(loaded, "components", {"model": loaded})
    return [part for part in parts.values() if isinstance(part, torch.nn.Module)]


@pytest.mark.parametrize("name", PIPELINES)
def test_the_prompt_reaches_the_output(name: str) -> None:
    workload = workload_named({"name": name, "prompt": "Quiet harbours under heavy snow"})
    assert workload.phases == PIPELINE_PHASES
    output = first(workload.run(workload.load(), device=CPU))
    assert (output - reference(name)[0]).abs().mean() > 1e-4


@pytest.mark.parametrize("changed", [{"seed": 1}, {"weights_seed": 1}, {"steps": 2}], ids=str)
def test_seeds_and_steps_reach_the_output(changed: dict[str, int]) -> None:
    workload = workload_named({"name": "flux.1-dev-tiny", **changed})
    output = first(workload.run(workload.load(), device=CPU))
    assert (output - reference("flux.1-dev-tiny")[0]).abs().mean() > 1e-3


@pytest.mark.parametrize("name", PIPELINES)
def test_stays_finite_in_the_dtype_of_the_full_model(name: str) -> None:
    dtype = load_architecture(name.removesuffix("-tiny")).dtype
    workload = workload_named({"name": name, "dtype": dtype})
    output = first(workload.run(workload.load(), device=CPU))
    assert torch.isfinite(output).all()
    assert output.std() > 0.02
