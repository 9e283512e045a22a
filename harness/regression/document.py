"""Write findings as one JSON document, complete, for other programs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

from paretune.harness.regression.findings import Finding, exit_status, verdict_line

__all__ = ["document"]


def document(findings: Sequence[Finding], **facts: Any) -> str:
    """Verdict, exit status, ``facts`` (such as what the number of pairs can detect) and every finding."""
    body = {
        "verdict": verdict_line(findings),
        "exit_status": exit_status(findings),
        **facts,
        "findings": [_plain(dataclasses.asdict(finding)) for finding in findings],
    }
    return json.dumps(body, indent=1, allow_nan=False) + "\n"


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
