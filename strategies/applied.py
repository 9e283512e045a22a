"""Apply a plan to a model and take it back exactly, whatever happens in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from paretune.strategies.base import ComponentStrategy, PipelineStrategy, Strategy, Undo
from paretune.strategies.errors import InfeasiblePlan, PlanError
from paretune.strategies.facade import present
from paretune.strategies.lazy import torch
from paretune.strategies.parts import Parts
from paretune.strategies.plan import Plan, Setting, ordered
from paretune.strategies.rules import explain

if TYPE_CHECKING:
    from paretune.strategies.base import Facts

__all__ = ["Applied"]


class Applied:
    """A plan at work on a model.

    with Applied([LayerwiseCasting(storage_dtype="float8_e4m3fn"), GroupOffload(level="leaf_level")], pipe, "cuda"):
        image = pipe(prompt).images[0]

    plan: a ``Plan``, its text, or an iterable of strategies and settings.
    model: an ``nn.Module`` or a pipeline with ``components``. Components whose weights no strategy places are moved
    whole. device: where the computation happens.

    A pipeline-level strategy that places weights sees only the components that no other setting of the plan places, so
    ``model_offload + transformer:block_residency(...)`` streams the transformer and takes turns with the rest.

    Raises ``PlanError`` (names, parameters), ``InfeasiblePlan`` (rules) or ``Unsupported`` (this model or device); the
    model is then as it was.
    """

    def __init__(self, plan: Plan | str | Iterable[Strategy | Setting], model: Any, device: torch.device | str) -> None:
        self.plan = Plan.of(plan)
        self.device = _with_index(torch.device(device))
        self.parts = Parts.of(model)
        self.facts: dict[str, Facts] = {}
        settings = ordered(self._placed())
        _refuse_what_rules_refuse(settings, self.device)
        self._undo = ExitStack()
        try:
            self._apply(settings)
        except BaseException:
            self._undo.close()
            raise

    def _placed(self) -> Iterator[Setting]:
        for setting in self.plan:
            if setting.component is not None:
                self.parts.named(setting.component)
                yield setting
            elif isinstance(setting.strategy, PipelineStrategy):
                yield setting
            else:
                yield from self._find_components(cast(ComponentStrategy, setting.strategy))

    def _find_components(self, strategy: ComponentStrategy) -> Iterator[Setting]:
        names = self.parts.with_roles(strategy.roles)
        if not names or (len(names) > 1 and not strategy.everywhere):
            choices = ", ".join(f"{name}:{strategy.name}" for name in names or self.parts.modules)
            raise PlanError(f"{strategy.name} does not say which component it is for. Write one of: {choices}.")
        for name in names:
            own = strategy.for_component(name) if strategy.everywhere and not self.parts.is_module else strategy
            if own is not None:
                yield Setting(strategy=own, component=name)

    def _apply(self, settings: list[Setting]) -> None:
        undo = self._undo.callback
        early = [s for s in settings if not s.strategy.places_weights]
        placing = [s for s in settings if s.strategy.places_weights]
        named = [s for s in placing if s.component is not None]
        unnamed = [s for s in placing if s.component is None]
        taken = {s.component for s in named}
        free = {name: module for name, module in self.parts.modules.items() if name not in taken}
        for setting in [*early, *named, *unnamed]:
            self._apply_one(setting, free)
        if not unnamed:
            _move_whole(Parts(root=self.parts.root, modules=free), self.device, undo)
        _share_device(self.parts, undo)
        if not self.parts.is_module:
            present(self.parts.root, undo, _execution_device=self.device)

    def _apply_one(self, setting: Setting, free: Mapping[str, torch.nn.Module]) -> None:
        strategy, undo = setting.strategy, self._undo.callback
        if isinstance(strategy, PipelineStrategy):
            facts = strategy.apply(self._parts_for(setting, free), self.device, undo)
        else:
            model = self.parts.named(setting.component or "model")
            facts = cast(ComponentStrategy, strategy).apply(model, self.device, undo)
        if facts:
            self.facts[str(setting)] = facts

    def _parts_for(self, setting: Setting, free: Mapping[str, torch.nn.Module]) -> Parts:
        """What a pipeline-level strategy works on: the component it names, else all, or all that nothing places."""
        if setting.component is not None:
            modules: Mapping[str, torch.nn.Module] = {setting.component: self.parts.named(setting.component)}
        else:
            modules = free if setting.strategy.places_weights else self.parts.modules
        if not modules:
            raise InfeasiblePlan([f"{setting} has nothing to do: other settings place every component. Remove it."])
        return Parts(root=self.parts.root, modules=modules, undo_plan=self.undo)

    def undo(self) -> None:
        """Restore the model exactly; calling it again does nothing."""
        self._undo.close()

    def __enter__(self) -> Applied:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def _with_index(device: torch.device) -> torch.device:
    """Text such as "cuda" means the current card; tensors there say "cuda:0", and devices must compare equal."""
    if device.index is not None or device.type in ("cpu", "meta", "mps"):
        return device
    module = torch.get_device_module(device)
    return torch.device(device.type, module.current_device()) if hasattr(module, "current_device") else device


def _refuse_what_rules_refuse(settings: list[Setting], device: torch.device) -> None:
    from paretune.strategies.mechanics.capabilities import surroundings

    reasons = explain(settings, surroundings(device))
    if reasons:
        raise InfeasiblePlan(reasons)


def _move_whole(parts: Parts, device: torch.device, undo: Undo) -> None:
    from paretune.strategies.mechanics.transfer import move_module

    for module in parts.modules.values():
        move_module(module, device, undo)


def _share_device(parts: Parts, undo: Undo) -> None:
    from paretune.strategies.mechanics.sharing import share_device

    if not parts.is_module:
        share_device(parts.root, list(parts.modules.values()), undo)
