"""Components of a pipeline: one at a time, in any order, and nothing stays after any public call."""

from __future__ import annotations

import pytest
import torch
from support.snapshot import snapshot
from support.toys import WIDTH, FakePipeline, make_pipeline
from support.tripwire import Tripwire
from torch import nn

from paretune.strategies import Applied, InfeasiblePlan
from paretune.strategies.mechanics.placement import execution_device
from paretune.strategies.mechanics.residency import residency_of

PLANS = (
    "model_offload",
    "sequential_offload",
    "group_offload",
    "group_offload(level=leaf_level)",
    "model_offload + transformer:group_offload(level=leaf_level)",
    "model_offload + transformer:block_residency(num_resident_blocks=1,look_ahead=0)",
    "group_offload(exclude=[vae])",
    "vae:model_offload",
)
each_plan = pytest.mark.parametrize("plan", PLANS)
X = torch.linspace(-1, 1, 2 * WIDTH).reshape(2, WIDTH)


def parts_of(pipeline: FakePipeline) -> dict[str, nn.Module]:
    return {name: part for name, part in pipeline.components.items() if part is not None}


def weights_of(pipeline: FakePipeline) -> list[torch.Tensor]:
    placed = [part for part in parts_of(pipeline).values() if residency_of(part) is not None]
    return [tensor for part in placed for tensor in (*part.parameters(), *part.buffers())]


def resident(pipeline: FakePipeline) -> dict[str, int]:
    found = {name: residency_of(part) for name, part in parts_of(pipeline).items()}
    return {name: placed.resident_bytes for name, placed in found.items() if placed is not None}


@each_plan
@pytest.mark.parametrize(
    "call",
    [
        lambda p: p(X),
        lambda p: p.encode_prompt(X),
        lambda p: p(X, embeddings=X),
        lambda p: p(X, steps=1),
    ],
    ids=["full", "encode_prompt", "embeddings given", "one step"],
)
def test_nothing_is_left_after_any_public_call(plan: str, call: object) -> None:
    reference, pipeline = make_pipeline(), make_pipeline()
    with torch.no_grad():
        wanted = call(reference)
        with Applied(plan, pipeline, "cpu"), Tripwire(weights_of(pipeline)):
            for _ in range(2):
                assert torch.equal(call(pipeline), wanted)
                if "model_offload" in plan or "resid" not in plan:
                    assert set(resident(pipeline).values()) <= {0}


@each_plan
@pytest.mark.parametrize("missing", ["vae", "text_encoder"])
def test_a_pipeline_without_one_component_works(plan: str, missing: str) -> None:
    if missing in plan:
        return
    without = {missing: False}
    reference, pipeline = make_pipeline(**without), make_pipeline(**without)
    with torch.no_grad(), Applied(plan, pipeline, "cpu"):
        assert torch.equal(pipeline(X, embeddings=X), reference(X, embeddings=X))


def test_a_component_stays_while_it_is_called_again_and_leaves_when_another_starts() -> None:
    pipeline = make_pipeline()
    seen: list[dict[str, int]] = []
    watch = lambda *_: seen.append(resident(pipeline))  # noqa: E731
    with torch.no_grad(), Applied("model_offload", pipeline, "cpu"):
        pipeline.transformer.before.register_forward_hook(watch)
        pipeline.vae.decoder.inlet.register_forward_hook(watch)
        pipeline(X)
    assert [{name for name, size in state.items() if size} for state in seen] == [{"transformer"}] * 3 + [{"vae"}]


def test_the_repeated_component_is_copied_once() -> None:
    pipeline = make_pipeline()
    with torch.no_grad(), Applied("model_offload", pipeline, "cpu"):
        placed = residency_of(pipeline.transformer)
        assert placed is not None
        fetches: list[int] = []
        fetch = placed.link.fetch
        placed.link.fetch = lambda *args, **kwargs: (fetches.append(1), fetch(*args, **kwargs))[1]  # type: ignore[method-assign]
        pipeline(X, steps=5)
    assert len(fetches) == 1


@each_plan
def test_the_pipeline_says_where_it_computes(plan: str) -> None:
    pipeline = make_pipeline()
    with Applied(plan, pipeline, "cpu"):
        assert execution_device(pipeline) == torch.device("cpu")
        assert pipeline._execution_device == torch.device("cpu")
    assert "_execution_device" in vars(FakePipeline)
    assert type(pipeline) is FakePipeline


@each_plan
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_call_that_breaks_leaves_the_device_empty_and_the_next_one_right(
    plan: str, error: type[BaseException]
) -> None:
    reference, pipeline = make_pipeline(), make_pipeline()
    before = {name: snapshot(part) for name, part in parts_of(pipeline).items()}
    with torch.no_grad():
        wanted = reference(X)
        with Applied(plan, pipeline, "cpu"):

            def blow(*_: object) -> None:
                raise error

            for part in (pipeline.text_encoder.down, pipeline.transformer.blocks[1].up, pipeline.vae.decoder.inlet):
                handle = part.register_forward_pre_hook(blow)
                with pytest.raises(error):
                    pipeline(X)
                handle.remove()
                if "model_offload" in plan:
                    assert set(resident(pipeline).values()) <= {0}
                assert torch.equal(pipeline(X), wanted)
    for name, part in parts_of(pipeline).items():
        assert before[name].differences(snapshot(part)) == []


def test_moving_the_pipeline_is_refused_as_a_whole() -> None:
    class Movable(FakePipeline):
        def to(self, device: str) -> Movable:
            for part in parts_of(self).values():
                part.to(device)
            return self

    toy = make_pipeline()
    pipeline = Movable(toy.text_encoder, toy.transformer, toy.vae)
    with Applied("vae:group_offload", pipeline, "cpu"):
        with pytest.raises(RuntimeError, match="Undo the plan"):
            pipeline.to("meta")
        assert not any(p.is_meta for part in parts_of(pipeline).values() for p in part.parameters())


def test_a_plan_that_places_everything_twice_is_refused() -> None:
    with pytest.raises(InfeasiblePlan, match="place every component"):
        Applied("model_offload + group_offload", make_pipeline(), "cpu")


def test_excluded_components_are_moved_whole_and_unknown_names_refused() -> None:
    pipeline = make_pipeline()
    with Applied("group_offload(exclude=[vae,transformer.blocks])", pipeline, "cpu"):
        assert residency_of(pipeline.vae) is None
        placed = residency_of(pipeline.transformer)
        assert placed is not None
        assert [unit.group.name for unit in placed.units][-1] == "excluded"
    from paretune.strategies import Unsupported

    with pytest.raises(Unsupported, match="no module named 'nothing'"):
        Applied("group_offload(exclude=[transformer.nothing])", pipeline, "cpu")
