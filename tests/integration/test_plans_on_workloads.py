"""Every first strategy on every tiny workload: the output is the reference's, and undoing leaves nothing behind."""

import pytest
import torch

from paretune.harness import outputs, restored
from paretune.harness.fidelity import compare
from paretune.harness.workloads import workload_named, workload_names
from paretune.strategies import Applied, Unsupported
from paretune.strategies.parts import Parts

CPU = torch.device("cpu")
TINY = [name for name in workload_names() if name.endswith("-tiny")]

EXACT = {
    "model_offload": 0.0,
    "group_offload(level=block_level)": 0.0,
    "group_offload(level=leaf_level)": 0.0,
}
CLOSE = {
    "vae:vae_slicing": 1e-4,
    "channels_last": 1e-3,
    "attention_backend(backend=_native_math)": 1e-3,
}
LOSSY = {"layerwise_casting(storage_dtype=float8_e4m3fn)": 0.5, "vae:vae_tiling(tile_size=32)": 0.9}
"""The largest relative L2 distance from the reference. Tiny models with random weights magnify rounding and cutting."""


class Interrupted(Exception):
    """Raised in the middle of a forward."""


def _plan_for(plan: str, parts: Parts) -> str | None:
    """The plan as it is written for this model, ``None`` where it has no component for it."""
    if plan.startswith("vae:"):
        return plan if "vae" in parts.modules else None
    if plan.startswith(("attention", "layerwise")):
        names = parts.with_roles(("denoiser",))
        return f"{names[0]}:{plan}" if names else None
    return plan


def _middle(parts: Parts) -> torch.nn.Module:
    denoiser = parts.modules[(parts.with_roles(("denoiser",)) or tuple(parts.modules))[0]]
    leaves = [module for module in denoiser.modules() if isinstance(module, torch.nn.Linear | torch.nn.Conv2d)]
    return leaves[len(leaves) // 2]


def _raise(module: torch.nn.Module, args: object) -> None:
    raise Interrupted


@pytest.mark.parametrize("name", TINY)
def test_plans_leave_the_output_and_the_model_as_they_were(name):
    workload = workload_named({"name": name, "steps": 2} if "steps" in workload_named(name).spec else name)
    loaded = workload.load()
    reference = outputs.flatten(workload.run(loaded, device=CPU))
    parts, before = Parts.of(loaded), restored.look(loaded)
    for plan, limit in (EXACT | CLOSE | LOSSY).items():
        written = _plan_for(plan, parts)
        if written is None:
            continue
        try:
            applied = Applied(written, loaded, "cpu")
        except Unsupported:
            assert restored.differences(before, restored.look(loaded)) == [], plan
            continue
        with applied:
            found = compare(outputs.flatten(workload.run(loaded, device=CPU)), reference)
            _interrupt(workload, loaded, parts)
        assert found["is_finite"] and found["relative_l2"] <= limit, (plan, found)
        assert restored.differences(before, restored.look(loaded)) == [], plan
    again = compare(outputs.flatten(workload.run(loaded, device=CPU)), reference)
    assert again["is_exact"], "a plan changed the weights for good"


def _interrupt(workload: object, loaded: object, parts: Parts) -> None:
    handle = _middle(parts).register_forward_pre_hook(_raise)
    try:
        workload.run(loaded, device=CPU)
    except Interrupted:
        pass
    finally:
        handle.remove()
