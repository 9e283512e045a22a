"""A workload that is one call of a pipeline or module: the same seed gives the same output."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from paretune.harness.workloads.base import Observer, Workload, WorkloadError
from paretune.harness.workloads.inputs import make_inputs
from paretune.harness.workloads.outputs import as_tensors
from paretune.harness.workloads.phases import PIPELINE_PHASES, observed
from paretune.harness.workloads.request import Request, user_names
from paretune.harness.workloads.sources import Built, Source

if TYPE_CHECKING:
    import torch

__all__ = ["CalledWorkload"]

_MODULE_PHASES = ("forward",)

_SIZE = ("height", "width")

_DEFAULT_PROMPT = "An astronaut riding a horse on Mars"


class CalledWorkload(Workload):
    """A source and the overrides of one call."""

    def __init__(self, source: Source, request: Request) -> None:
        self._source = source
        self._request = request
        self._built: Built | None = None
        self._made: dict[str, Mapping[str, Any]] = {}
        self.spec = _resolved(source.describe(), request)

    @property
    def phases(self) -> tuple[str, ...]:
        """Encode, denoise and decode of a pipeline; forward of a module. What a function returns shows when it ran."""
        if self._built is not None:
            return _MODULE_PHASES if _is_module(self._built.model) else PIPELINE_PHASES
        return _MODULE_PHASES if self.spec.get("pipeline") is None else PIPELINE_PHASES

    def load(self) -> Any:
        """Build it on the host. Raises `WorkloadError`, also for overrides that its call does not take."""
        with _seeded(self._request.weights_seed):
            built = self._source.build()
        asked = dict(self._request.call)
        target = _target(built)
        if any(one.kind == "image" for one in built.inputs.values()):
            asked = {name: value for name, value in asked.items() if name not in _SIZE or _takes(name, target)}
        for name in {**built.call, **asked}:
            _refuse_unknown_argument(name, target)
        self._built, self._made = dataclasses.replace(built, call={**built.call, **asked}), {}
        return built.model

    def run(self, loaded: Any, *, device: torch.device, observer: Observer | None = None) -> Any:
        """Call `loaded`, which `load` returned, once; see `Workload.run`."""
        import torch

        if self._built is None or self._built.model is not loaded:
            raise WorkloadError(
                f"workload {self._request.name}: run was given what load did not return. Call load first."
            )
        with torch.no_grad(), _seeded(self._request.seed):
            if _is_module(loaded):
                return as_tensors(self._run_module(self._built, device, observer))
            with observed(loaded, observer):
                return as_tensors(_first(loaded(**self._pipeline_arguments(self._built))))

    def with_steps(self, num_steps: int) -> Workload | None:
        """See `Workload.with_steps`. A picture to start from leaves a share of the steps out; it has no shorter call."""
        steps = self.spec.get("steps")
        is_shorter = isinstance(steps, int) and steps > num_steps and self.spec.get("strength") is None
        if self._built is None or _is_module(self._built.model) or not is_shorter:
            return None
        short = copy.copy(self)
        short._built = dataclasses.replace(self._built, call={**self._built.call, "num_inference_steps": num_steps})
        short.spec = {**self.spec, "steps": num_steps}
        return short

    def _run_module(self, built: Built, device: torch.device, observer: Observer | None) -> Any:
        arguments = self._on_device(built, device)
        if observer is not None:
            observer.phase("forward")
            observer.step()
        call = built.model if built.method == "forward" else getattr(built.model, built.method)
        return call(**arguments)

    def _on_device(self, built: Built, device: torch.device) -> Mapping[str, Any]:
        """Inputs are copied to a device once, so that timed calls start with them there."""
        if str(device) not in self._made:
            made = {**self._inputs(built), **built.call}
            self._made[str(device)] = {name: _moved(value, device) for name, value in made.items()}
        return self._made[str(device)]

    def _pipeline_arguments(self, built: Built) -> dict[str, Any]:
        import torch

        if "host" not in self._made:
            self._made["host"] = self._inputs(built)
        arguments = {**self._made["host"], **built.call}
        accepted = inspect.signature(type(built.model).__call__).parameters
        if "generator" in accepted:
            arguments["generator"] = torch.Generator("cpu").manual_seed(self._request.seed)
        if "prompt" in accepted and not {"prompt", "prompt_embeds"} & arguments.keys():
            arguments["prompt"] = _DEFAULT_PROMPT
        if "output_type" in accepted:
            arguments.setdefault("output_type", "pt")
        if "return_dict" in accepted:
            arguments["return_dict"] = False
        for name in ("prompt", "negative_prompt"):
            arguments |= _batched(name, arguments.get(name), self._request.batch_size)
        return arguments

    def _inputs(self, built: Built) -> dict[str, Any]:
        return make_inputs(
            built.inputs,
            dtype=_compute_dtype(self.spec),
            seed=self._request.seed,
            batch_size=self._request.batch_size or 1,
        )


def _resolved(described: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """The description of the call as it will be made, with the names users write."""
    arguments = {**described.get("call", {}), **request.call}
    rest = {key: value for key, value in described.items() if key != "call"}
    batch_size = request.batch_size or _length(arguments.get("prompt"))
    seeds = {"seed": request.seed, "weights_seed": request.weights_seed}
    loading = dict(request.loading)
    return {"name": request.name, **rest, **user_names(arguments), "batch_size": batch_size, **seeds, **loading}


def _length(prompt: Any) -> int:
    return len(prompt) if isinstance(prompt, list | tuple) else 1


def _batched(name: str, text: Any, batch_size: int | None) -> dict[str, Any]:
    """Copies of the prompt, one per image: a fresh list each time, because some pipelines write into it."""
    if text is None:
        return {}
    if isinstance(text, list | tuple):
        if batch_size not in (None, 1, len(text)):
            raise WorkloadError(f"workload.batch_size: {batch_size} does not fit the {len(text)} entries of `{name}`.")
        return {name: list(text)}
    return {name: [text] * batch_size if batch_size and batch_size > 1 else text}


def _compute_dtype(spec: Mapping[str, Any]) -> torch.dtype:
    import torch

    dtype: torch.dtype = getattr(torch, spec.get("dtype") or "float32")
    return dtype


def _is_module(model: Any) -> bool:
    import torch

    return isinstance(model, torch.nn.Module)


def _target(built: Built) -> Callable[..., Any]:
    if _is_module(built.model):
        method: Callable[..., Any] = getattr(built.model, built.method)
        return method
    return type(built.model).__call__


def _refuse_unknown_argument(name: str, target: Callable[..., Any]) -> None:
    if not _takes(name, target):
        known = ", ".join(key for key in inspect.signature(target).parameters if key not in ("self", "kwargs"))
        asked = next(iter(user_names({name: None})))
        raise WorkloadError(f"workload.{asked}: the call does not take it. It takes: {known}.")


def _takes(name: str, target: Callable[..., Any]) -> bool:
    """diffusers' pipelines take `**kwargs` for retired arguments and drop all others; elsewhere it means any."""
    parameters = inspect.signature(target).parameters
    is_open = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return name in parameters or (is_open and not target.__module__.startswith("diffusers."))


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, dict):
        return {name: _moved(item, device) for name, item in value.items()}
    return value.to(device) if hasattr(value, "to") and hasattr(value, "dtype") else value


def _first(output: Any) -> Any:
    """The images or frames of what a pipeline returns with `return_dict=False`."""
    return output[0] if isinstance(output, tuple) and output else output


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draws from the host's default generator start at `seed`; its state is given back."""
    import torch

    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(before)
