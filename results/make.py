"""Make the reference results again: simulated ladders of every full-size pipeline, and sweeps measured on this CPU.

    python results/make.py simulated --seconds 3600 --workers 2 --card rtx-3060-12gb
    python results/make.py cpu

A study is kept under ``studies/`` and goes on where it was stopped; ``--fresh`` forgets it, which is right after the
simulator has changed. What is written beside this file holds no raw traces, host names or folders.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from paretune.harness.records import Record
from paretune.harness.regression.baseline import write
from paretune.harness.report.ladder import Rung, rungs
from paretune.harness.report.markdown import escape, table
from paretune.harness.report.units import seconds
from paretune.harness.simulator.sheets import load_gpu
from paretune.harness.spec import LADDER
from paretune.harness.store import Store
from paretune.harness.workloads.architecture import Architecture, load_architecture
from paretune.harness.workloads.catalog import workload_names

RESULTS = Path(__file__).parent
STUDIES = RESULTS.parent / "studies"
CARDS = ("rtx-4090", "rtx-3060-12gb", "h100")
"""The cards of the reference ladders, the default first."""
MEASURED = ("flux.1-schnell-tiny", "sdxl-tiny", "sd3-medium-tiny", "wan-2.1-1.3b-tiny", "ltx-video-tiny")


def main() -> None:
    """Make what is asked for; exits 1 when a workload left no record."""
    options = _options()
    names = options.workloads or (full_size_pipelines() if options.what == "simulated" else MEASURED)
    until, empty = time.monotonic() + options.seconds, []
    for index, name in enumerate(names):
        left_s = max(60.0, (until - time.monotonic()) / (len(names) - index))
        records = _swept(name, options, left_s)
        if records:
            write(folder_of(options) / f"{name}.jsonl", records)
        else:
            empty.append(name)
    if options.what == "simulated":
        (RESULTS / "simulated" / "LADDERS.md").write_text(_ladders(RESULTS / "simulated"))
    sys.exit(f"no record of {', '.join(empty)}" if empty else 0)


def folder_of(options: argparse.Namespace) -> Path:
    """Where the files of a run belong: simulated ones beside those of the same card."""
    folder = RESULTS / options.what
    return folder / options.card if options.what == "simulated" else folder


def full_size_pipelines() -> tuple[str, ...]:
    """Shipped pipelines of full size, those of images first: they are the quickest to simulate."""
    names = [name for name in workload_names() if not name.endswith("-tiny") and load_architecture(name).pipeline]
    return tuple(sorted(names, key=lambda name: (load_architecture(name).call.get("num_frames", 1), name)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("simulated", "cpu"))
    parser.add_argument("workloads", nargs="*", help="some only; all without")
    parser.add_argument("--card", choices=CARDS, default=CARDS[0], help="of a simulation")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all together; shared out among them")
    parser.add_argument("--trials", type=int, default=40, help="plans of each workload, the telling ones first")
    parser.add_argument("--workers", type=int, default=2, help="trials at a time, only in simulation")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs measured")
    return parser.parse_args()


def _swept(name: str, options: argparse.Namespace, left_s: float) -> list[Record]:
    study = STUDIES / folder_of(options).relative_to(RESULTS) / name
    if options.fresh:
        shutil.rmtree(study, ignore_errors=True)
    arguments = [*_question(name, options.what), f"workload.name={name}", f"effort.max_seconds={left_s:.0f}"]
    arguments += ["--trials", str(options.trials)]
    if options.what == "simulated":
        arguments += ["--workers", str(options.workers), "--device", f"sim:{options.card},memory=80GiB"]
    command = [sys.executable, "-m", "paretune.harness", "sweep", *arguments, "--output", str(study)]
    sys.stderr.write(f"{name}, for {left_s:.0f} s at most\n")
    subprocess.run(command, check=False)
    return Store(study).records() if study.is_dir() else []


def _question(name: str, what: str) -> list[str]:
    if what == "cpu":
        return [str(RESULTS / "cpu" / f"{'unet' if has_unet(load_architecture(name)) else 'transformer'}.yaml")]
    return ["ladder-unet" if has_unet(load_architecture(name)) else "ladder"]


def has_unet(architecture: Architecture) -> bool:
    """Whether the denoiser is a UNet, whose plans name another component."""
    return "unet" in architecture.components


def _ladders(folder: Path) -> str:
    """A table for each card: the fastest plan that keeps the output, for each model and memory size."""
    titles = ["model", *(size.replace("GiB", " GiB") for size in LADDER)]
    parts = [_HEAD]
    for card in CARDS:
        found = [(path.stem, Store(path).records()) for path in sorted((folder / card).glob("*.jsonl"))]
        cells = [[name, *(_cell(rung) for rung in rungs(records))] for name, records in found]
        if cells:
            parts.append(f"## {load_gpu(card).label}\n\n{table(titles, cells, [False] * len(titles))}\n")
    return "\n".join(parts)


def _cell(rung: Rung) -> str:
    if rung.row is None:
        return "-"
    return f"{seconds(rung.row.latency_s or 0.0)}<br>{escape(_short(rung.row.plan))}"


def _short(plan: str) -> str:
    """The strategies, each once, without parts and parameters, which would make the table too wide to read."""
    names = (part.partition("(")[0].rpartition(":")[2] + " leaf" * ("leaf_level" in part) for part in plan.split(" + "))
    return " + ".join(dict.fromkeys(names))


_HEAD = """# What each memory size buys

Simulated, not measured: the fastest plan that keeps the output as it is, on the card as its data sheet describes it but with
the memory named on top. Seconds are those of one call, calculated from data sheets and an uncalibrated host; `-` means that no
plan tried fits. Parameters of the plans and every other figure are in the model's file in the folder of the card. Made by
`python results/make.py simulated --card NAME`.
"""


if __name__ == "__main__":
    main()
