"""Run every example of ``configs/seed_scenarios.yaml``; keep its tables and its records beside this file.

    python results/seed_scenarios.py --fresh

The study is kept under ``studies/`` and goes on where it was stopped; ``--fresh`` forgets it, which is right after the
simulator has changed. Nothing is written unless every question was answered.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from paretune.harness.regression.baseline import write
from paretune.harness.store import Store

RESULTS = Path(__file__).parent
STUDY = RESULTS.parent / "studies" / "seed-scenarios"


def main() -> None:
    """Sweep and write; exits with the sweep's code when it failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="trials at a time, only in simulation")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    options = parser.parse_args()
    if options.fresh:
        shutil.rmtree(STUDY, ignore_errors=True)
    question = ["seed_scenarios", "--workers", str(options.workers), "--output", str(STUDY), "--format", "markdown"]
    swept = subprocess.run([sys.executable, "-m", "paretune.harness", "sweep", *question], stdout=subprocess.PIPE)
    if swept.returncode:
        sys.exit(swept.returncode)
    (RESULTS / "seed-scenarios.md").write_text(_HEAD + swept.stdout.decode(), encoding="utf-8")
    write(RESULTS / "seed-scenarios.jsonl", Store(STUDY).records())


_HEAD = """# The examples of diffusers' guides, side by side

Every example of "Reduce memory usage" and "Attention backends" (diffusers 0.42.1) beside the untouched pipeline. Tables
that say *simulated* are predictions for the named card at full size, nothing in them was measured. Tables that say
*measured* come from toy-size siblings on a CPU, where weights cast or moved stay in the same memory: they show that a
plan runs and what it does to the output, while memory and time are those of the simulated tables. Made by
`python results/seed_scenarios.py`; every other figure is in `seed-scenarios.jsonl`.
"""


if __name__ == "__main__":
    main()
