"""tune, recommend, sweep and plan from the command line, on a simulated card and a tiny model, and what they export."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from paretune.harness import config
from paretune.harness.cli import main
from paretune.harness.diffusers_code import diffusers_lines
from paretune.harness.export import to_diffusers, to_python, to_yaml
from paretune.harness.question import prepare
from paretune.harness.recommend import recommend
from paretune.harness.records import Kind, Outcome, Record
from paretune.harness.store import Store
from paretune.harness.tuning import Answer
from paretune.harness.workloads import workload_named
from paretune.strategies import Plan

WORKLOAD = "flux.1-dev-tiny"
PLANS = "space.plans=[resident, model_offload, 'text_encoder:group_offload(level=leaf_level)', 'vae:vae_slicing']"
QUICK = ("procedure.min_iterations=1", "procedure.max_iterations=1", "procedure.num_warmup=0")


def call(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words)
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


def test_tune_then_recommend_from_its_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("--device", "sim:rtx-4070", "--vram", "12GiB", "--output", str(tmp_path / "out"), "--format", "json")
    status, out, err = call("tune", WORKLOAD, PLANS, *common, capsys=capsys)
    assert status == 0, err
    answer = json.loads(out)
    assert answer["status"] == "verified" and answer["record"]["kind"] == "simulated"
    assert answer["study"]["num_run"] == 4
    before = len(Store(tmp_path / "out").records())
    status, out, err = call("recommend", WORKLOAD, PLANS, *common, capsys=capsys)
    assert status == 0, err
    assert json.loads(out)["plan"] == answer["plan"]
    assert len(Store(tmp_path / "out").records()) == before

    status, out, err = call("recommend", WORKLOAD, PLANS, *_with(common, "1MiB"), capsys=capsys)
    nothing = json.loads(out)
    assert status == 0 and nothing["plan"] is None
    assert nothing["closest"] and nothing["missing_bytes"] > 0 and "missing" in nothing["sentence"]

    status, out, err = call("recommend", WORKLOAD, PLANS, "--ladder", *common[:-2], capsys=capsys)
    assert status == 0 and "ladder:" in out and out.count("needs ") >= 9

    url = f"sqlite:///{tmp_path}/shared.db"
    status, out, err = call("tune", WORKLOAD, PLANS, *common, "--storage", url, capsys=capsys)
    joined = re.search(r"to join: paretune worker --storage '(.+)' --study '(.+)'", err)
    assert status == 0 and joined is not None and joined[1] == url
    join = ("worker", "--storage", url, "--study", joined[2], "--output", str(tmp_path / "other"))
    status, out, err = call(*join, capsys=capsys)
    assert status == 0 and "trials are finished" in err

    again = ("tune", WORKLOAD, PLANS, "effort.max_trials=60", *common)
    status, out, err = call(*again, capsys=capsys)
    assert len(Store(tmp_path / "out").records()) == before


def _with(common: tuple[str, ...], vram: str) -> tuple[str, ...]:
    return tuple(vram if word == "12GiB" else word for word in common)


def test_what_is_wrong_is_named_and_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = ("--output", str(tmp_path))
    for words, said in {
        ("tune", "flux.1-dev-tinny", *output): "flux.1-dev-tiny",
        ("tune", WORKLOAD, "budgt.device_memory=1GiB", *output): "`budget`",
        ("tune", WORKLOAD, "--vram", "12Gib", "--device", "sim:rtx-4070", *output): "Did you mean 'GiB'",
        ("tune", WORKLOAD, "--sampler", "best", "--device", "sim:rtx-4070", *output): "residual",
        ("tune", WORKLOAD, "--workers", "2", "--device", "cpu", *output): "--workers",
        ("recommend", "--vram", "12GiB", *output): "WORKLOAD is missing",
        ("worker", "--storage", f"sqlite:///{tmp_path}/none.db", "--study", "no", *output): "holds no study",
    }.items():
        status, out, err = call(*words, capsys=capsys)
        assert status == 2 and said in err and not out, (words, err)


def test_a_dry_run_lists_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call("plan", WORKLOAD, "--device", "cpu", "--format", "json", capsys=capsys)
    told = json.loads(out)
    assert status == 0 and told["num_plans"] == len(told["plans"])
    assert told["plans"][0] == "resident" and told["num_refused"] > 0
    assert all(entry["reasons"] for entry in told["refused"])


def answer_with(plan: str, device: str = "cpu") -> Answer:
    question = prepare(config.parse({"workload": WORKLOAD, "device": device, "space": {"plans": [plan]}}))
    record = Record(
        key="k",
        kind=Kind.MEASURED,
        outcome=Outcome.COMPLETE,
        workload=workload_named(WORKLOAD).spec,
        device=device,
        plan=question.canonical(plan),
        latency_s=(1.0,),
        peak_allocated_bytes=2**30,
    )
    best = recommend([record], question.budget)
    return Answer(question=question, recommendation=best, ladder=(), records=(record,))


EXPORTED = "text_encoder:group_offload(level=leaf_level) + vae:vae_slicing"


def test_the_exported_program_runs_and_gives_the_same_output(tmp_path: Path) -> None:
    answer = answer_with(EXPORTED)
    (tmp_path / "run.py").write_text(to_python(answer))
    output = runpy.run_path(str(tmp_path / "run.py"))["output"]
    workload = workload_named(WORKLOAD)
    expected = workload.run(workload.load(), device=torch.device("cpu"))
    assert _equal(output, expected)


def test_the_program_in_plain_diffusers_does_the_same(tmp_path: Path) -> None:
    text = to_diffusers(answer_with(EXPORTED))
    assert text is not None and "paretune" not in text
    (tmp_path / "run.py").write_text(text)
    prepare_pipe = runpy.run_path(str(tmp_path / "run.py"), run_name="exported")["prepare"]
    workload = workload_named(WORKLOAD)
    expected = workload.run(workload.load(), device=torch.device("cpu"))
    pipe = prepare_pipe(workload.load(), torch.device("cpu"))
    workload_again = workload_named(WORKLOAD)
    workload_again.load()
    workload_again._built = type(workload_again._built)(  # type: ignore[attr-defined]
        model=pipe,
        call=workload_again._built.call,  # type: ignore[attr-defined]
    )
    assert _equal(workload_again.run(pipe, device=torch.device("cpu")), expected)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other))


def test_the_exported_question_holds_exactly_this_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(to_yaml(answer_with(EXPORTED)))
    question = prepare(config.load(tmp_path / "plan.yaml"))
    assert str(question.plans.feasible[-1]) == answer_with(EXPORTED).records[0].plan


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("model_offload", "enable_model_cpu_offload"),
        ("sequential_offload", "enable_sequential_cpu_offload"),
        ("transformer:layerwise_casting", "apply_layerwise_casting"),
        ("transformer:attention_backend(backend=_native_math)", "set_attention_backend('_native_math')"),
        ("vae:channels_last", "memory_format=torch.channels_last"),
        ("transformer:block_residency(num_resident_blocks=1,look_ahead=0)", None),
        ("model_offload + transformer:group_offload", None),
    ],
)
def test_what_diffusers_has_words_for(plan: str, said: str | None) -> None:
    roles = {"text_encoder": "text_encoder", "transformer": "denoiser", "vae": "vae"}
    lines = diffusers_lines(Plan.parse(plan), roles)
    assert (lines is None) == (said is None)
    if said is not None:
        assert lines is not None and any(said in line for line in lines)
