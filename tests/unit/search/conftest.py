"""Every test of this folder sees the toy strategies only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.toy_space import toy_registry


@pytest.fixture(autouse=True)
def _toys() -> Iterator[None]:
    with toy_registry():
        yield
