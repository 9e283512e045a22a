"""What a strategy is: a frozen dataclass whose fields are its parameters and whose ``apply`` can always be undone."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from paretune.strategies.errors import PlanError
from paretune.strategies.notation import format_strategy, format_value
from paretune.strategies.rules import Rule
from paretune.strategies.values import fits, typed

if TYPE_CHECKING:
    import torch

    from paretune.strategies.parts import Parts

__all__ = ["ComponentStrategy", "Facts", "PipelineStrategy", "Role", "Strategy", "Undo", "tunable"]

Undo = Callable[[Callable[[], object]], object]
"""Takes the inverse of the change made on the line before; inverses run last first, also after an exception."""

Facts = Mapping[str, Any]
"""What really engaged, for the record: numbers of layers cast, groups formed, layers reached. JSON values only."""

Role = Literal["denoiser", "text_encoder", "vae", "other"]


def tunable(
    *,
    default: Any,
    choices: tuple[Any, ...] = (),
    when: Callable[[Any], bool] | None = None,
    help: str = "",
    alias: str | None = None,
    free: bool = False,
) -> Any:
    """Declare a parameter of a strategy.

    ``choices`` are the values a sweep tries and, unless ``free``, the only ones allowed. ``when`` takes the setting and
    says whether the parameter means anything there: where it does not, it keeps its default and does not multiply trials.
    ``alias`` is another spelling (the library's) that plans may use.
    """
    metadata = {"choices": choices, "when": when, "help": help, "alias": alias, "free": free}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True, eq=False)
class Strategy(ABC):
    """One way to trade memory for time. Subclass ``ComponentStrategy`` or ``PipelineStrategy`` in a file of its own.

    name: how plans spell it, by default the module's name.
    changes_output: False when the output is bit-equal to the untouched model's, True when it may differ (lossy).
    places_weights: True when it decides where the weights live; other components are moved to the device whole.
    rules: what it excludes, requires, needs or precedes, with reasons.
    """

    name: ClassVar[str]
    changes_output: ClassVar[bool] = False
    places_weights: ClassVar[bool] = False
    rules: ClassVar[tuple[Rule, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__module__.rpartition(".")[2]
        for name in ("__eq__", "__hash__"):  # dataclass would make its own, to which True and 1 are the same parameter
            if name not in cls.__dict__:
                setattr(cls, name, Strategy.__dict__[name])

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            choices, free = field.metadata.get("choices", ()), field.metadata.get("free", False)
            value = getattr(self, field.name)
            if choices and not free and typed(value) not in map(typed, choices):
                allowed = ", ".join(map(format_value, choices))
                raise PlanError(f"{self.name}.{field.name}: {value!r} is not a choice. Choose one of: {allowed}.")
            if free and isinstance(field.type, str) and not fits(value, field.type):
                raise PlanError(
                    f"{self.name}.{field.name}: {value!r} is not of its type, {field.type}. Write one that is."
                )

    def _key(self) -> Hashable:
        if "_typed" not in self.__dict__:
            told = tuple((field.name, typed(getattr(self, field.name))) for field in dataclasses.fields(self))
            object.__setattr__(self, "_typed", told)
        return self.__dict__["_typed"]  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Strategy) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    @property
    def is_lossy(self) -> bool:
        """Whether this setting may change the output; a strategy whose answer depends on its parameters overrides it."""
        return self.changes_output

    def parameters(self) -> dict[str, Any]:
        """The parameters that mean something in this setting, by name."""
        active = {}
        for field in dataclasses.fields(self):
            when = field.metadata.get("when")
            if when is None or when(self):
                active[field.name] = getattr(self, field.name)
        return active

    def __str__(self) -> str:
        return format_strategy(self)


@dataclass(frozen=True, kw_only=True)
class ComponentStrategy(Strategy):
    """A strategy for one ``nn.Module``; on a pipeline it is applied to a named component.

    roles: the components it makes sense for; where exactly one component of a pipeline has such a role, plans may leave
    the name out. everywhere: leaving the name out means every component with such a role, not the only one.
    """

    roles: ClassVar[tuple[Role, ...]] = ("denoiser",)
    everywhere: ClassVar[bool] = False

    def for_component(self, name: str) -> ComponentStrategy | None:
        """The setting for component ``name`` when the plan names none and it works everywhere; ``None`` leaves it out."""
        return self

    @abstractmethod
    def apply(self, model: torch.nn.Module, device: torch.device, undo: Undo) -> Facts | None:
        """Change ``model`` so that it will run on ``device``; hand every inverse to ``undo``.

        Raises ``Unsupported`` before anything is changed if this model or device cannot do it.
        """


@dataclass(frozen=True, kw_only=True)
class PipelineStrategy(Strategy):
    """A strategy that must see all components at once, such as model offload."""

    @abstractmethod
    def apply(self, parts: Parts, device: torch.device, undo: Undo) -> Facts | None:
        """Change the components of ``parts``; same contract as ``ComponentStrategy.apply``."""
