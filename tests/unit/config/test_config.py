"""Questions in YAML: what is wrong is named with its path and the nearest right key; nothing is guessed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paretune.harness.config import ConfigError, load, parse, shipped_configs
from paretune.harness.scenarios import load_questions
from paretune.harness.spec import LADDER, SAMPLERS, Spec

GIB = 2**30


def question(**changes: object) -> dict[str, object]:
    return {"workload": "flux.1-dev", "budget": {"device_memory": "12GiB"}, **changes}


def test_units_are_told_apart() -> None:
    assert parse(question()).budget.device_memory == 12 * GIB
    assert parse(question(), ["budget.device_memory=12GB"]).budget.device_memory == 12 * 10**9


def test_overrides_are_typed_and_create_what_is_missing() -> None:
    spec = parse(question(), ["workload.steps=8", "search.sampler=tpe", "effort.max_trials=5", "ladder=[6GiB, 8GiB]"])
    assert spec.workload == {"name": "flux.1-dev", "steps": 8}
    assert (spec.search.sampler, spec.effort.max_trials, spec.ladder) == ("tpe", 5, (6 * GIB, 8 * GIB))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bugdet": {}}, "`bugdet` is not a key. Did you mean `budget`?"),
        ({"budget": {"device_memry": "1GiB"}}, "Did you mean `budget.device_memory`?"),
        ({"budget": {"device_memory": "1Gib"}}, "`budget.device_memory`: '1Gib'"),
        ({"budget": {"device_memory": 12}}, "`budget.device_memory`"),
        ({"budget": {"device_memory": -1}}, "negative"),
        ({"budget": {"device_memory": 1.5e10}}, "whole bytes"),
        ({"budget": {"latency_s": float("inf")}}, "`budget.latency_s`"),
        ({"effort": {"max_trials": 0}}, "`effort.max_trials`"),
        ({"effort": {"max_trials": True}}, "`effort.max_trials`"),
        ({"effort": {"max_seconds": True}}, "`effort.max_seconds`"),
        ({"budget": {"fidelity_db": True}}, "`budget.fidelity_db`"),
        ({"procedure": {"num_warmup": True}}, "`procedure.num_warmup`"),
        ({"search": {"seed": 1.0}}, "`search.seed`"),
        ({"search": {"prior": 1}}, "`search.prior`"),
        ({"allow_lossy": "yes"}, "`allow_lossy`"),
        ({"space": {"strategies": {"vae": {"vae_slicing": 1}}}}, "`space.strategies.vae.vae_slicing"),
        ({"search": {"sampler": "bayes"}}, "`search.sampler`"),
        ({"search": {"explore": 0.9}}, "`search.explore`"),
        ({"procedure": {"min_iterations": 5, "max_iterations": 3}}, "max_iterations is below min_iterations"),
        ({"objective": "memory"}, "needs `budget.latency_s`"),
        ({"workload": {"steps": 4}}, "`workload`"),
        ({"workload": {}}, "`workload`"),
    ],
)
def test_mistakes(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(question(**changes))
    assert said in str(caught.value)


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(question(bugdet={}, effort={"max_trials": 0}))
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    "override", ["workload.steps", "=3", "workload.steps=[", "device.name=3", "budget={a: 1, a: 2}"]
)
def test_overrides_that_cannot_be_read(override: str) -> None:
    with pytest.raises(ConfigError, match="override"):
        parse(question(device="cpu"), [override])


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text("workload: flux.1-dev\nbudget: {device_memory: 8GiB}\n")
    assert load(path).budget.device_memory == 8 * GIB
    for text, said in {
        "- a\n": "a mapping",
        "a: [\n": "not valid YAML",
        "workload: a\nworkload: b\n": "written twice",
        "workload: a\nbudget: {device_memory: 8GiB, device_memory: 9GiB}\n": "written twice",
        "workload: {name: a, arguments: {1: x, true: y}}\n": "the keys 1 and True are one key",
        "workload: {name: a, arguments: {1: x, '1': y}}\n": "the keys 1 and '1' are one key",
    }.items():
        path.write_text(text)
        with pytest.raises(ConfigError, match=said):
            load(path)
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="Did you mean 'demo'"):
        load("demoo")


@pytest.mark.parametrize("name", shipped_configs())
def test_shipped_questions_are_valid(name: str) -> None:
    assert all(titled.spec.workload["name"] for titled in load_questions(name))


def test_a_spec_cannot_be_changed_and_survives_json() -> None:
    spec = parse(question(ladder=list(LADDER)))
    with pytest.raises(ValueError, match="frozen"):
        spec.device = "cuda"  # type: ignore[misc]
    assert Spec.model_validate_json(spec.model_dump_json()) == spec
    assert spec.question_id() == parse(question(ladder=list(LADDER)), ["effort.max_trials=3"]).question_id()
    assert spec.question_id() != parse(question()).question_id()


def test_names_of_samplers_agree() -> None:
    for name in SAMPLERS:
        assert parse(question(search={"sampler": name})).search.sampler == name


def test_the_pure_middle_imports_no_torch() -> None:
    names = ("spec", "config", "planner", "space", "pareto", "constraints", "recommend", "question", "study", "export")
    code = f"import sys; [__import__('paretune.harness.' + n) for n in {names}]; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
