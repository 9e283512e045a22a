"""Make a question concrete: which device, which components, which plans; everything a study needs before it starts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paretune.harness import environment
from paretune.harness.components import Components, components_of
from paretune.harness.planner import Plans, canonical, expand
from paretune.harness.recommend import VERIFICATION
from paretune.harness.records import Record, Trial
from paretune.harness.search.encoding import Encoding
from paretune.harness.space import axes_of
from paretune.harness.spaces import preset
from paretune.harness.spec import Budget, Spec
from paretune.strategies import Surroundings
from paretune.strategies.sizes import format_size, parse_size

__all__ = ["UNLIMITED", "Question", "prepare", "surroundings_of"]

UNLIMITED = "1TiB"
"""Memory of a simulated card while plans are compared: nothing runs out, so every plan shows what it needs."""

_MEMORY = re.compile(r",memory=([^,]+)")


@dataclass(frozen=True, kw_only=True)
class Question:
    """A spec with its device, components and plans.

    device: where the answer must hold, as users write it. budget: the spec's, with the card's own memory where the spec
    names no cap and the card is a simulated one. is_lifted: whether plans are compared on a simulated card whose memory
    never runs out, so that every plan shows what it needs.
    """

    spec: Spec
    device: str
    budget: Budget
    components: Components
    plans: Plans
    is_lifted: bool = True

    @cached_property
    def encoding(self) -> Encoding:
        return Encoding(self.plans, self.components.roles)

    @property
    def is_simulated(self) -> bool:
        return self.device.startswith("sim:")

    @property
    def search_device(self) -> str:
        """The device that plans are compared on: a simulated card without its limit, a real one as it is."""
        if not (self.is_simulated and self.is_lifted):
            return self.device
        return f"{_MEMORY.sub('', self.device)},memory={UNLIMITED}"

    def without_lifting(self) -> Question:
        """The same question with plans run on the card as it is, so that some run out of memory."""
        return dataclasses.replace(self, is_lifted=False)

    def exact_only(self) -> Question:
        """The same question without plans that may change the output."""
        exact = tuple(plan for plan in self.plans.feasible if not plan.is_lossy)
        return dataclasses.replace(self, plans=dataclasses.replace(self.plans, feasible=exact))

    def with_workers(self, workers: int) -> Question:
        """The same question, searched by this many trials at a time."""
        effort = self.spec.effort.model_copy(update={"workers": workers})
        return dataclasses.replace(self, spec=self.spec.model_copy(update={"effort": effort}))

    def on(self, device: str) -> Question:
        """The same question for another device."""
        return dataclasses.replace(self, device=device)

    @property
    def name(self) -> str:
        """The study's name: the same question over the same plans continues the same study."""
        return f"{self.spec.workload['name']}-{self.search_device}-{self.spec.question_id()}"

    def trial(self, plan: str, *, device: str | None = None, **changes: Any) -> Trial:
        """The trial that runs ``plan`` for this question."""
        trial = Trial(
            workload=self.spec.workload,
            device=device or self.search_device,
            plan=plan,
            procedure=self.spec.procedure.procedure(),
        )
        return dataclasses.replace(trial, **changes)

    def key(self, plan: str) -> str:
        """Key of the record that answers ``plan``."""
        return self.trial(plan).key(environment.versions())

    def answers(self, record: Record) -> bool:
        """Whether a record is of this workload and device, under the versions installed now."""
        if record.device not in (self.device, self.search_device) and not self._is_capped(record.device):
            return False
        asked = self.trial(record.plan, device=record.device, device_memory_bytes=record.device_memory_bytes)
        return dataclasses.replace(asked, options=record.options).key(environment.versions()) == record.key

    def _is_capped(self, device: str) -> bool:
        return self.is_simulated and _MEMORY.sub("", device) == _MEMORY.sub("", self.device)

    def verification(self, plan: str, cap: int | None) -> Trial:
        """The trial that runs ``plan`` again in a fresh process under the enforced cap."""
        device = self.device
        if self.is_simulated and cap is not None:
            device = f"{_MEMORY.sub('', device)},memory={format_size(cap)}"
        return self.trial(plan, device=device, device_memory_bytes=cap, options={"purpose": VERIFICATION})

    def canonical(self, plan: str) -> str:
        """The plan as this study writes it. Raises ``PlanError``."""
        return str(canonical(plan, self.components.roles))


def prepare(spec: Spec, *, where: Surroundings | None = None, components: Components | None = None) -> Question:
    """Find the device and the components, expand the space.

    Raises ``ConfigError`` (space), ``WorkloadError``, ``DeviceError``, ``PlanError`` or ``ValueError`` (space too
    large).
    """
    device = _device(spec.device)
    found = components or components_of(spec.workload)
    strategies: dict[str, Mapping[str, Any]] = {}
    if spec.space.preset is not None:
        strategies |= preset(found.family if spec.space.preset == "auto" else spec.space.preset)
    for target, wanted in spec.space.strategies.items():
        strategies[target] = {**strategies.get(target, {}), **wanted}
    axes = axes_of(strategies, found.roles, spec.space.exclude)
    plans = expand(axes, found.roles, where or surroundings_of(device), plans=spec.space.plans)
    resolved = spec.model_copy(update={"device": device})
    return Question(spec=resolved, device=device, budget=_budget(spec.budget, device), components=found, plans=plans)


def _device(name: str) -> str:
    if name != "auto":
        return name
    from paretune.harness.devices.names import resolve_auto

    return resolve_auto()[0]


def _budget(budget: Budget, device: str) -> Budget:
    if budget.device_memory is not None or not device.startswith("sim:"):
        return budget
    return budget.model_copy(update={"device_memory": _card_memory(device)})


def _card_memory(device: str) -> int:
    told = _MEMORY.search(device)
    if told:
        return parse_size(told[1], name="device memory")
    from paretune.harness.simulator.sheets import load_gpu

    return load_gpu(_card(device)).memory_bytes


def _card(device: str) -> str:
    return re.sub(r"x\d+$", "", device.removeprefix("sim:").partition(",")[0])


def surroundings_of(device: str) -> Surroundings:
    """What rules may ask about a device; a simulated one answers from its data sheet."""
    if device.startswith("sim:"):
        from paretune.harness.simulator.sheets import load_gpu

        words = frozenset({"streams", "pinned_memory", "device_memory"})
        capability = load_gpu(_card(device)).compute_capability
        return Surroundings(device_type="sim", capabilities=words, compute_capability=(capability[0], capability[1]))
    from paretune.harness.devices import driver
    from paretune.harness.devices.names import device_named
    from paretune.strategies.mechanics.capabilities import surroundings

    place = device_named(device).torch_device
    return surroundings(place, compute_capability=driver.compute_capability(place))
