"""Pairs of live processes: real slowdowns are found, equal code is silent, and every way to die is told."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from support.records import study

from paretune.harness.regression import baseline
from paretune.harness.regression.findings import Verdict
from paretune.harness.regression.gate import Request, gate
from paretune.harness.regression.interleave import PairError, PairParent, Rounds, Side, interleave, measure_pair
from paretune.harness.regression.latency import Sensitivity, confirmed
from paretune.harness.regression.live_process import LiveProcess

PROCESS = Path(__file__).parents[1] / "support" / "pair_process.py"


@pytest.fixture(scope="module")
def parent():
    with PairParent(libraries=()) as made:
        yield made


def side(how: str = "work", thousands: int = 60) -> Side:
    return Side(command=(sys.executable, "-P", str(PROCESS), how, str(thousands)))


def judged(head: Side, parent: PairParent):
    """By processor time: what else this machine does must not decide the test."""
    rounds = Rounds(least=3, most=5, clock="processor", timeout_s=20)

    def measure():
        return interleave(side(), head, parent=parent, num_pairs=4, rounds=rounds)["processor"]

    return confirmed(measure(), measure, Sensitivity(tolerance=0.1))


def test_a_slower_path_is_found_and_confirmed(parent):
    judgement = judged(side(thousands=180), parent)  # three times the work: no noise of a shared machine hides that
    assert judgement.verdict is Verdict.SLOW
    assert judgement.num_pairs == 8
    assert 1.1 < judgement.interval.low < judgement.interval.high


def test_equal_code_raises_no_alarm(parent):
    assert judged(side(), parent).verdict in (Verdict.SAME, Verdict.AMBIGUOUS)


def test_a_faster_path_needs_the_same_proof(parent):
    judgement = judged(side(thousands=20), parent)
    assert judgement.verdict is Verdict.FAST and judgement.num_pairs == 8


def test_samples_of_each_side_stay_with_their_side_when_swapped(parent):
    rounds = Rounds(least=3, most=3)
    clocks = measure_pair(side(), side(thousands=240), parent=parent, rounds=rounds, is_swapped=True)
    base, head = clocks["processor"]
    assert len(base) == len(head) == 6
    assert max(base) < min(head)
    assert clocks.keys() == {"wall", "processor"}


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ("refuse", "died.*cannot load"),
        ("die", "died.*about to die"),
        ("garbage", "answered b'not json"),
        ("zero", "no duration"),
        ("hang", "did not answer within 1 s"),
        ("half", "did not answer within 1 s"),
        ("close", "died"),
        ("kill", "died"),
        ("list", "measured None, which is no duration"),
        ("text", "measured '0.1', which is no duration"),
    ],
)
def test_a_process_that_fails_is_an_error_that_says_how(how, word, parent):
    with pytest.raises(PairError, match=f"(?s){word}"):
        measure_pair(side(), side(how), parent=parent, rounds=Rounds(least=2, timeout_s=1))


def test_a_process_that_prints_more_than_a_pipe_holds_is_measured_all_the_same(parent):
    clocks = measure_pair(side(), side("noisy"), parent=parent, rounds=Rounds(least=2, most=2, timeout_s=30))
    assert len(clocks["wall"][1]) == 4


def test_no_process_outlives_a_killed_gate(tmp_path):
    program = tmp_path / "gate.py"
    program.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from paretune.harness.regression.live_process import LiveProcess\n"
        "from paretune.harness.regression.preloaded import PairParent, Side\n"
        f"made = Side(command=(sys.executable, '-P', {str(PROCESS)!r}, 'work', '1'))\n"
        "with PairParent(libraries=()) as parent, LiveProcess(made, parent, 30) as live:\n"
        "    live.wait_until_ready()\n"
        "    Path('new').write_text(f'{parent._process.pid} {live._number}')\n"
        "    Path('new').rename('pids')\n"
        "    time.sleep(60)\n"
    )
    gate = subprocess.Popen((sys.executable, "-P", str(program)), cwd=tmp_path)
    until = time.monotonic() + 60
    while not (tmp_path / "pids").exists() and gate.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    gate.kill()
    gate.wait()
    _wait_until_gone([int(number) for number in (tmp_path / "pids").read_text().split()])


def test_the_gate_itself_touches_no_device(tmp_path, monkeypatch):
    """Whoever forks after a device was initialised gets children that cannot use it."""

    def touched(*_):
        raise AssertionError("the parent initialised a device")

    monkeypatch.setattr(torch.cuda, "_lazy_init", touched)
    monkeypatch.setattr(torch.accelerator, "current_stream", touched)
    committed = tmp_path / "b.jsonl"
    baseline.write(committed, study())
    verdict = gate(Request(baseline=committed), run=lambda trial: {r.plan: r for r in study()}[trial.plan])
    assert verdict.exit_status == 0


def test_a_missing_interpreter_is_told(parent):
    with pytest.raises(PairError, match=r"(?s)died.*FileNotFoundError"):
        measure_pair(side(), Side(command=("no-such-interpreter",)), parent=parent, rounds=Rounds())


def test_rounds_go_on_until_the_pair_is_precise_or_the_most_is_reached(parent):
    exact = Rounds(least=2, most=4, precision=1e-9)
    rough = Rounds(least=2, most=4, precision=10.0)
    counts = [len(measure_pair(side(), side(), parent=parent, rounds=r)["wall"][0]) for r in (exact, rough)]
    assert counts == [8, 4]


def test_another_interpreter_is_started_anew(parent):
    """A command the parent cannot become by forking alone; the answers are the same."""
    own = Side(command=(sys.executable, str(PROCESS), "work", "60"))
    assert measure_pair(own, side(), parent=parent, rounds=Rounds(least=1, most=1)).keys() == {"wall", "processor"}


def test_a_side_with_a_module_of_its_own_in_place_of_a_loaded_one_gets_its_own(parent, tmp_path):
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "__init__.py").write_text("raise SystemExit('the json of this side')\n")
    shadowing = Side(command=side().command, environment={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(PairError, match="the json of this side"):
        measure_pair(side(), shadowing, parent=parent, rounds=Rounds())


def test_no_process_outlives_the_parent():
    with ExitStack() as stack:
        with PairParent(libraries=()) as made:
            live = [stack.enter_context(LiveProcess(side(), made, 20.0)) for _ in range(2)]
            for process in live:
                process.wait_until_ready()
            numbers = [process._number for process in live]
        _wait_until_gone(numbers)


def _wait_until_gone(numbers):
    gone = time.monotonic() + 10
    while any(Path(f"/proc/{number}").exists() for number in numbers) and time.monotonic() < gone:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{number}").exists() for number in numbers)


def test_a_parent_that_dies_is_told_with_what_it_said():
    with PairParent(libraries=("no_such_library",)) as made:
        made._process.kill()
        with pytest.raises(PairError, match="the parent of the pairs is gone"):
            LiveProcess(side(), made, 5.0)


def test_forks_are_laid_out_differently(parent, tmp_path):
    """Forks that all place their memory alike would make what a placement costs look like a property of the code."""
    program = tmp_path / "where.py"
    program.write_text(
        "import mmap, ctypes, sys\n"
        "block = mmap.mmap(-1, 2**23)\n"
        "sys.exit(str(ctypes.addressof(ctypes.c_char.from_buffer(block))))\n"
    )
    seen = set()
    for _ in range(4):
        with pytest.raises(PairError) as raised:
            measure_pair(side(), Side(command=(sys.executable, "-P", str(program))), parent=parent, rounds=Rounds())
        seen.add(str(raised.value).split()[-1])
    assert len(seen) >= 3
