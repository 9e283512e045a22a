"""An answer as files people can use: YAML, a program with paretune, one with diffusers alone, a command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paretune.harness.diffusers_code import diffusers_lines
from paretune.harness.records import Kind
from paretune.strategies import Plan
from paretune.strategies.sizes import format_gib, format_size

if TYPE_CHECKING:
    from paretune.harness.records import Record
    from paretune.harness.tuning import Answer

__all__ = ["to_command", "to_diffusers", "to_python", "to_yaml", "write_exports"]

_CALL_NAMES = {"steps": "num_inference_steps"}
_CALL_KEYS = (
    "prompt",
    "negative_prompt",
    "height",
    "width",
    "num_frames",
    "steps",
    "guidance_scale",
    "max_sequence_length",
)


def write_exports(answer: Answer, folder: Path) -> tuple[Path, ...]:
    """Write every form the answer can take into ``folder``; nothing when no plan was chosen."""
    if answer.recommendation.chosen is None:
        return ()
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "plan.yaml": to_yaml(answer),
        "run_with_paretune.py": to_python(answer),
        "run_with_diffusers.py": to_diffusers(answer),
        "measure.sh": to_command(answer),
    }
    written = []
    for name, text in texts.items():
        if text is not None:
            (folder / name).write_text(text, encoding="utf-8")
            written.append(folder / name)
    return tuple(written)


def to_yaml(answer: Answer) -> str:
    """A question that holds only this plan: ``paretune sweep FILE`` measures it again."""
    import yaml

    record, question = _chosen(answer), answer.question
    document: dict[str, Any] = {"workload": dict(question.spec.workload), "device": question.device}
    if question.budget.device_memory is not None:
        document["budget"] = {"device_memory": format_size(question.budget.device_memory)}
    document["allow_lossy"] = record.is_lossy
    document["space"] = {"plans": [record.plan]}
    return f"# {_evidence(answer)}\n" + yaml.safe_dump(document, sort_keys=False, width=120)


def to_python(answer: Answer) -> str:
    """A program that runs the workload under the plan with paretune."""
    record = _chosen(answer)
    return f'''"""{_evidence(answer)}"""

import torch

from paretune.harness.workloads import workload_named
from paretune.strategies import Applied

DEVICE = torch.device("{_device(answer)}")
PLAN = {record.plan!r}

workload = workload_named({dict(answer.question.spec.workload)!r})
pipe = workload.load()  # or your own pipeline: DiffusionPipeline.from_pretrained(...)
with Applied(PLAN, pipe, DEVICE):
    output = workload.run(pipe, device=DEVICE)  # or pipe(prompt).images[0]
'''


def to_diffusers(answer: Answer) -> str | None:
    """A program without paretune, ``None`` where diffusers has no words for the plan."""
    record = _chosen(answer)
    checkpoint = _checkpoint(record)
    lines = diffusers_lines(Plan.parse(record.plan), answer.question.components.roles)
    if lines is None or checkpoint is None:
        return None
    body = "\n".join(f"    {line}" for line in lines)
    dtype = record.workload.get("dtype") or "bfloat16"
    call = ", ".join(f"{name}={value!r}" for name, value in _call(record.workload).items())
    return f'''"""{_evidence(answer)}"""

import torch
from diffusers import DiffusionPipeline


def prepare(pipe, device):
{body}
    return pipe


if __name__ == "__main__":
    pipe = DiffusionPipeline.from_pretrained({checkpoint!r}, torch_dtype=torch.{dtype})
    output = prepare(pipe, torch.device("{_device(answer)}"))({call})
'''


def to_command(answer: Answer) -> str:
    """The command that measures the chosen plan again under the cap."""
    record, question = _chosen(answer), answer.question
    words = ["paretune", "run", str(question.spec.workload["name"])]
    words += [f"workload.{key}={value}" for key, value in question.spec.workload.items() if key != "name"]
    words += ["--device", question.device, "--plan", record.plan]
    if question.budget.device_memory is not None:
        words += ["--cap", format_size(question.budget.device_memory)]
    return shlex.join(words) + "\n"


def _chosen(answer: Answer) -> Record:
    record = answer.recommendation.chosen
    if record is None:
        raise ValueError("nothing to export: no plan fits the budget.")
    return record


def _device(answer: Answer) -> str:
    return "cuda" if answer.question.is_simulated else answer.question.device


def _evidence(answer: Answer) -> str:
    record, best = _chosen(answer), answer.recommendation
    cap = answer.question.budget.device_memory
    fits = f" in {format_gib(cap)}" if cap is not None else ""
    simulated = " (simulated)" if record.kind is Kind.SIMULATED else ""
    name, seconds = answer.question.spec.workload["name"], record.median_latency_s
    return f"{name}{fits}: {seconds:.3g} s a call, {best.status}{simulated}."


def _checkpoint(record: Record) -> str | None:
    """What ``from_pretrained`` takes: the id or folder itself, or the repository an architecture was published in."""
    name, published = str(record.workload.get("name")), record.workload.get("published")
    if isinstance(published, str) and "huggingface.co/" in published:
        return "/".join(published.partition("huggingface.co/")[2].split("/")[:2])
    is_function = ":" in name or name.endswith((".yaml", ".yml"))
    return None if is_function or record.workload.get("source") == "architecture" else name


def _call(workload: Mapping[str, Any]) -> dict[str, Any]:
    return {_CALL_NAMES.get(key, key): workload[key] for key in _CALL_KEYS if workload.get(key) is not None}
