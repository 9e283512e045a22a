"""Measure a card and its host in about a minute and write the sheets that the simulator computes with."""

from paretune.harness.calibration.run import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
