"""Write and read plans: ``transformer:group_offload(level=leaf_level,use_stream=true) + vae:vae_tiling``."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from paretune.strategies.errors import PlanError
from paretune.strategies.values import typed

if TYPE_CHECKING:
    from paretune.strategies.base import Strategy

__all__ = ["build", "format_strategy", "format_value", "split_outside", "strategy_from_text", "value_from_text"]

_BARE = re.compile(r"[A-Za-z0-9_.\-/*]+")
"""Texts that need no quotes, unless they would be read as something else (``true``, ``12``, ``NaN``)."""
_OPEN, _CLOSE = "([{", ")]}"


def split_outside(text: str, separator: str) -> list[str]:
    """Split at separators that stand outside brackets and double quotes. Raises ``PlanError`` when either is left open."""
    pieces, depth, quoted, start = [], 0, False, 0
    index = 0
    while index < len(text):
        char = text[index]
        if quoted:
            index += char == "\\"
            quoted = char != '"'
        elif char == '"':
            quoted = True
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == separator and depth == 0:
            pieces.append(text[start:index])
            start = index + 1
        if depth < 0:
            break
        index += 1
    if depth or quoted:
        raise PlanError(f"{text!r}: {'a quote' if quoted else 'a bracket'} is not closed. Balance it.")
    return [*pieces, text[start:]]


def format_value(value: Any) -> str:
    """One parameter value as plans spell it; ``value_from_text`` is its inverse."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and _BARE.fullmatch(value) and value_from_text(value) == value:
        return value
    if isinstance(value, tuple):
        return "[" + ",".join(map(format_value, value)) + "]"
    if isinstance(value, Mapping):
        return json.dumps(dict(value), separators=(",", ":"))
    return json.dumps(value)


def value_from_text(text: str) -> Any:
    """Read a value: ``true``, ``null``, a number, a bare word, a "quoted string", a [list] or a {"mapping": 0}."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip()
        return tuple(value_from_text(piece) for piece in split_outside(inner, ",")) if inner else ()
    try:
        return json.loads(text, object_pairs_hook=_once_each)
    except PlanError:
        raise
    except ValueError:
        pass
    if _BARE.fullmatch(text):
        return text
    raise PlanError(f'{text!r} is not a value. Write true, null, a number, a word, a "quoted string", a [list].')


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise PlanError(f"the key {json.dumps(key)} stands twice in one mapping. Remove one.")
        found[key] = value
    return found


def format_strategy(strategy: Strategy) -> str:
    """The setting as plans spell it: parameters that differ from their default, in the order they are declared."""
    defaults = {field.name: field.default for field in dataclasses.fields(strategy)}
    told = {name: value for name, value in strategy.parameters().items() if typed(value) != typed(defaults[name])}
    inner = ",".join(f"{name}={format_value(value)}" for name, value in told.items())
    return f"{strategy.name}({inner})" if inner else strategy.name


def _arguments(text: str) -> Iterator[tuple[str, Any]]:
    for piece in split_outside(text, ",") if text.strip() else ():
        name, equals, value = piece.partition("=")
        if not equals:
            raise PlanError(f"{piece.strip()!r} is not `name=value`.")
        yield name.strip(), value_from_text(value)


def strategy_from_text(text: str, known: Mapping[str, type[Strategy]]) -> Strategy:
    """Build the strategy that ``text`` (``name`` or ``name(parameter=value,...)``) spells. Raises ``PlanError``."""
    match = re.fullmatch(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if match is None:
        raise PlanError(f"{text.strip()!r} is not `strategy` or `strategy(parameter=value,...)`.")
    arguments = list(_arguments(match[2] or ""))
    names = [name for name, _ in arguments]
    for name in {n for n in names if names.count(n) > 1}:
        raise PlanError(f"{match[1]}.{name} is given twice. Remove one.")
    return build(match[1], dict(arguments), known)


def build(name: str, arguments: Mapping[str, Any], known: Mapping[str, type[Strategy]]) -> Strategy:
    """Build strategy ``name`` with these parameters; unknown names are refused with the nearest known one."""
    if name not in known:
        raise PlanError(f"strategy {name!r} does not exist.{_nearest(name, list(known))}")
    cls = known[name]
    fields = {field.name: field for field in dataclasses.fields(cls)}
    aliases = {f.metadata["alias"]: f.name for f in fields.values() if f.metadata.get("alias")}
    values = {aliases.get(key, key): _frozen(value) for key, value in arguments.items()}
    for key in values:
        if key not in fields:
            raise PlanError(f"{name}.{key} is not a parameter.{_nearest(key, list(fields))}")
    return cls(**values)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(sorted(known)) or 'none'}."
