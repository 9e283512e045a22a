"""Small checkpoints on disk: a tiny workload saved as the library saves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paretune.harness.workloads import workload_named


def save_checkpoint(folder: Path, name: str = "sdxl-tiny", **options: Any) -> Path:
    """Save the pipeline of a tiny workload under ``folder``; options go to ``save_pretrained``."""
    pipeline = workload_named(name).load()
    pipeline.save_pretrained(folder, safe_serialization=True, **options)
    return folder
