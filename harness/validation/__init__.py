"""Compare simulated figures with published measurements, row by row, and learn how far to trust predictions."""

from paretune.harness.validation.compare import RowResult
from paretune.harness.validation.engine import validate
from paretune.harness.validation.summary import Report

__all__ = ["Report", "RowResult", "validate"]
