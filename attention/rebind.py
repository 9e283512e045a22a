"""Copies of a class's own methods that call another attention function; the class and its module stay as they are.

A layer reaches attention through names: a global (``F.scaled_dot_product_attention``), a helper function, a closure, a
table of functions. ``Rebinder`` follows those names through Python code and rebuilds just the functions on the way,
with a private copy of the names they use. So one layer can be routed without touching ``torch.nn.functional``, the
model's source module or any other model, and the compiler sees an ordinary function.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Rebinder"]

_TARGET_NAMES = frozenset({"scaled_dot_product_attention", "dispatch_attention_fn"})
# Base classes of whole libraries: hundreds of methods for saving and loading, none of them a layer's computation.
_NOT_LAYERS = (
    "torch.nn.modules.module",
    "diffusers.configuration_utils",
    "diffusers.loaders",
    "diffusers.models.cache_utils",
    "diffusers.models.modeling_utils",
    "diffusers.utils",
    "huggingface_hub",
    "transformers.generation",
    "transformers.integrations",
    "transformers.modeling_utils",
    "transformers.utils",
)
_TORCH_TO_READ = ("torch.nn.functional", "torch.nn.modules")


class Rebinder:
    """Rebuilds functions and classes with ``replacements`` (original function -> stand-in)."""

    def __init__(self, replacements: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
        self._targets = {id(original): (original, stand_in) for original, stand_in in replacements.items()}
        self._functions: dict[int, tuple[Any, Any, bool]] = {}
        self._classes: dict[type, type | None] = {}
        self._modules: dict[tuple[int, frozenset[str]], types.ModuleType | None] = {}
        self._is_blind = False
        self.blind: set[type] = set()
        """Classes whose code mentions attention in a way that cannot be followed, such as an import inside a method."""

    def subclass(self, cls: type) -> type | None:
        """A subclass of ``cls`` of the same name whose methods reach the stand-ins; None when no method reaches one."""
        if cls not in self._classes:
            self._classes[cls] = self._build(cls)
        return self._classes[cls]

    def value(self, value: Any) -> Any | None:
        """What to use in place of ``value``: a stand-in, a rebuilt function or table; None to keep it."""
        if id(value) in self._targets:
            return self._targets[id(value)][1]
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, functools.partial):
            inner = self.value(value.func)
            return None if inner is None else functools.partial(inner, *value.args, **value.keywords)
        if isinstance(value, types.MethodType):
            inner = self.value(value.__func__)
            return None if inner is None else types.MethodType(inner, value.__self__)
        if isinstance(value, dict | list | tuple) and type(value) in (dict, list, tuple):
            return self._container(value)
        return self._interface(value) if hasattr(type(value), "get_interface") else None

    def _build(self, cls: type) -> type | None:
        layers, overrides, hidden = [], {}, set[str]()
        for base in cls.__mro__:
            own = {} if base.__module__.startswith(_NOT_LAYERS) or base is object else self._methods(base)
            own = {name: method for name, method in own.items() if name not in hidden}
            hidden |= {name for name, attribute in vars(base).items() if not _calls_super(attribute)}
            if base is cls:
                overrides = own
            elif own:
                layers.append(type(base.__name__, (base,), {**own, "__module__": base.__module__}))
        if not overrides and not layers:
            return None
        identity = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        return type(cls.__name__, (cls, *layers), {**overrides, **identity})

    def _methods(self, cls: type) -> dict[str, Any]:
        found = {}
        for name, attribute in vars(cls).items():
            function = attribute.__func__ if isinstance(attribute, staticmethod) else attribute
            if id(function) in self._targets:
                found[name] = staticmethod(self._targets[id(function)][1])
            if name == "__init__" or not isinstance(function, types.FunctionType):
                continue
            self._is_blind = False
            rebuilt = self._function(function)
            if rebuilt is not None:
                found[name] = staticmethod(rebuilt) if isinstance(attribute, staticmethod) else rebuilt
            if self._is_blind:
                self.blind.add(cls)
        return found

    def _function(self, function: types.FunctionType) -> Any | None:
        if id(function) not in self._functions:
            self._functions[id(function)] = (function, None, False)  # What a function that calls itself sees.
            outer, self._is_blind = self._is_blind, False
            rebuilt = self._rebuilt(function)
            self._functions[id(function)] = (function, rebuilt, self._is_blind)
            self._is_blind |= outer
        _, rebuilt, is_blind = self._functions[id(function)]
        self._is_blind |= is_blind
        return rebuilt

    def _rebuilt(self, function: types.FunctionType) -> Any | None:
        home = function.__module__ or ""
        if home.partition(".")[0] == "torch" and not home.startswith(_TORCH_TO_READ):
            return None
        names = _names(function.__code__)
        changed = {}
        for name in names & function.__globals__.keys():
            value = function.__globals__[name]
            new = self._module(value, names) if isinstance(value, types.ModuleType) else self.value(value)
            if new is not None:
                changed[name] = new
        cells = self._closure(function)
        defaults = tuple(self.value(value) or value for value in function.__defaults__ or ())
        if not changed and cells is None and all(a is b for a, b in zip(defaults, function.__defaults__ or ())):
            self._is_blind |= bool(_TARGET_NAMES & names)
            return None
        if "STORE_GLOBAL" in _steps(function.__code__) or (
            _TARGET_NAMES & names and "IMPORT_NAME" in _steps(function.__code__)
        ):
            # A private copy of the names would lose what it writes, and does not hold what it imports.
            self._is_blind = True
            return None
        # Without __name__ the compiler guards on this dictionary instead of the source module's names.
        scope = {key: value for key, value in function.__globals__.items() if key != "__name__"} | changed
        copy = types.FunctionType(
            function.__code__, scope, function.__name__, defaults or None, cells or function.__closure__
        )
        copy.__kwdefaults__ = function.__kwdefaults__
        scope.update({name: copy for name in names if scope.get(name) is function})
        functools.update_wrapper(copy, function)
        del copy.__dict__["__wrapped__"]
        return copy

    def _closure(self, function: types.FunctionType) -> tuple[Any, ...] | None:
        old = function.__closure__ or ()
        new = []
        for cell in old:
            try:
                value = self.value(cell.cell_contents)
            except ValueError:  # A cell that is still empty.
                value = None
            new.append(cell if value is None else types.CellType(value))
        return tuple(new) if any(a is not b for a, b in zip(old, new)) else None

    def _module(self, module: types.ModuleType, names: frozenset[str]) -> types.ModuleType | None:
        """A copy of ``module`` in which the attributes that this code uses lead to the stand-ins.

        Only submodules are entered, because modules import each other in circles.
        """
        key = (id(module), names)
        if key not in self._modules:
            changed = {}
            for name in names & module.__dict__.keys():
                value = module.__dict__[name]
                if not isinstance(value, types.ModuleType):
                    new = self.value(value)
                elif value.__name__.startswith(f"{module.__name__}."):
                    new = self._module(value, names)
                else:
                    new = self._module(value, names - {name}) if _TARGET_NAMES & names & value.__dict__.keys() else None
                if new is not None:
                    changed[name] = new
            copy = types.ModuleType(module.__name__)
            copy.__dict__.update(module.__dict__ | changed)
            self._modules[key] = copy if changed else None
        return self._modules[key]

    def _container(self, table: Any) -> Any | None:
        if isinstance(table, dict):
            new = {key: self.value(value) for key, value in table.items() if callable(value)}
            return table | {k: v for k, v in new.items() if v is not None} if any(new.values()) else None
        if len(table) > 64 or not any(callable(item) for item in table):
            return None
        items = [(self.value(item) if callable(item) else None) or item for item in table]
        return type(table)(items) if any(a is not b for a, b in zip(items, table)) else None

    def _interface(self, table: Any) -> Any | None:
        """transformers' table of attention functions: the same table, answering with rebuilt functions."""
        new = {key: self.value(value) for key, value in table.items() if isinstance(value, types.FunctionType)}
        known = {key: value for key, value in new.items() if value is not None}
        return _Interface(table, known) if known else None


class _Interface:
    """Answers for ``known`` names itself and asks the original table for all others."""

    def __init__(self, table: Any, known: Mapping[str, Callable[..., Any]]) -> None:
        self.table = table
        self.known = dict(known)

    def get_interface(self, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        """As transformers' ``AttentionInterface.get_interface``."""
        if name in self.known:
            return self.known[name]
        function: Callable[..., Any] = self.table.get_interface(name, default)
        return function

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.get_interface(name, self.table[name])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)


def _calls_super(attribute: Any) -> bool:
    """Whether an overriding method may still run the one it overrides."""
    code = getattr(attribute, "__code__", None)
    return code is not None and "super" in _names(code)


@functools.cache
def _steps(code: types.CodeType) -> frozenset[str]:
    """The kinds of instruction in a function."""
    return frozenset(step.opname for step in dis.get_instructions(code))


@functools.cache
def _names(code: types.CodeType) -> frozenset[str]:
    """Every name in a function and the functions inside it, and target names that it passes to ``getattr``."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, str) and constant in _TARGET_NAMES and "getattr" in code.co_names:
            found.add(constant)
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return frozenset(found)
