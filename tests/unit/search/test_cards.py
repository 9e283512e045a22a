"""A real card finds the data sheet that describes it."""

from __future__ import annotations

import pytest

from paretune.harness.search.prior import nearest_card

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "memory_gib", "capability", "card"),
    [
        ("NVIDIA GeForce RTX 4070", 11.7, "8.9", "rtx-4070"),
        ("NVIDIA GeForce RTX 4090", 23.6, "8.9", "rtx-4090"),
        ("NVIDIA GeForce RTX 3090", 23.6, "8.6", "rtx-3090"),
        ("NVIDIA A10G", 22.0, "8.6", "a10g"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 15.7, "8.9", "rtx-4070-ti-super"),
        ("NVIDIA GeForce RTX 4080", 15.7, "8.9", "rtx-4080"),
        ("NVIDIA GeForce RTX 4060", 7.6, "8.9", "rtx-4060"),
        ("NVIDIA GeForce RTX 3060 Ti", 7.8, "8.6", "rtx-3060-ti"),
        ("NVIDIA GeForce RTX 3060", 11.7, "8.6", "rtx-3060-12gb"),
        ("NVIDIA GeForce RTX 5080", 15.5, "12.0", "rtx-5080"),
        ("NVIDIA RTX A6000", 47.5, "8.6", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", 47.5, "8.9", "rtx-6000-ada"),
        ("NVIDIA L4", 22.0, "8.9", "l4"),
        ("NVIDIA L40S", 44.4, "8.9", "l40s"),
        ("NVIDIA A100-SXM4-80GB", 79.3, "8.0", "a100-80gb"),
        ("NVIDIA A100-PCIE-40GB", 39.4, "8.0", "a100-pcie-40gb"),
        ("NVIDIA H100 80GB HBM3", 79.1, "9.0", "h100"),
        ("NVIDIA H200", 139.8, "9.0", "h200"),
        ("Tesla T4", 14.6, "7.5", "t4"),
        ("NVIDIA Card Of The Future", 100.0, "99.0", None),
        ("NVIDIA Card Of The Future", 100.0, None, None),
    ],
)
def test_nearest_card(name: str, memory_gib: float, capability: str | None, card: str | None) -> None:
    facts = {"name": name, "memory_bytes": int(memory_gib * GIB), "compute_capability": capability}
    assert nearest_card(facts) == card
