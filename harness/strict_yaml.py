"""Read YAML and refuse keys that are written twice, of which YAML would silently keep the last."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

__all__ = ["read_yaml"]


class _Loader(yaml.SafeLoader):
    """The safe loader, with mappings in which every key stands once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is written twice; remove one", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(text: str) -> Any:
    """The document in ``text``. Raises ``yaml.YAMLError``, also for a key that stands twice in one mapping."""
    return yaml.load(text, Loader=_Loader)
