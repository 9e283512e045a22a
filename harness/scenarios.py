"""Read a file that asks several questions: keys beside `questions` hold for all of them, each entry adds its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paretune.harness.config import ConfigError, parse, read_document
from paretune.harness.spec import Spec

__all__ = ["Titled", "asks_several", "load_questions"]


@dataclass(frozen=True, kw_only=True)
class Titled:
    """A question with the words that stand above its table."""

    title: str
    spec: Spec


def asks_several(document: Mapping[str, Any]) -> bool:
    """Whether a document holds `questions` rather than being one."""
    return "questions" in document


def load_questions(path: str, overrides: Sequence[str] = ()) -> tuple[Titled, ...]:
    """The questions of a file in order; a file that is one question gives that one, titled by its workload.

    Overrides hold for every question.

    Raises:
        ConfigError: naming the file, the entry and the key.
    """
    document = dict(read_document(path))
    if not asks_several(document):
        return (_titled(document, overrides, path),)
    listed = document.pop("questions")
    if not isinstance(listed, list) or not listed or not all(isinstance(entry, Mapping) for entry in listed):
        raise ConfigError(f"{path}: `questions` is a list of mappings, one per question.")
    return tuple(
        _titled({**document, **entry}, overrides, f"{path}: questions.{index}") for index, entry in enumerate(listed)
    )


def _titled(document: dict[str, Any], overrides: Sequence[str], name: str) -> Titled:
    title = document.pop("title", None)
    spec = parse(document, overrides, name=name)
    return Titled(title=str(title or spec.workload["name"]), spec=spec)
