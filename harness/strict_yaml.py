"""Read YAML and refuse keys that are written twice, of which YAML, or JSON after it, would silently keep the last."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

__all__ = ["read_yaml"]


_Fast: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Fast):  # type: ignore[misc, valid-type]
    """The safe loader, with mappings in which every key stands once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Any, Any] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            spellings = (key, str(key))  # equal to Python (1, true and 1.0), or once they are texts (1 and "1")
            for same in spellings:
                if same in seen:
                    raise yaml.constructor.ConstructorError(None, None, _twice(seen[same], key), key_node.start_mark)
            seen |= dict.fromkeys(spellings, key)
        made: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return made


def _twice(other: Any, key: Any) -> str:
    if type(other) is type(key):
        return f"the key {key!r} is written twice; remove one"
    return f"the keys {other!r} and {key!r} are one key here; remove one, or write them as texts that differ"


def read_yaml(text: str) -> Any:
    """The document in ``text``. Raises ``yaml.YAMLError``, also for a key that stands twice in one mapping."""
    return yaml.load(text, Loader=_Loader)
