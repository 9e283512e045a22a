"""Whatever a child process does, the parent gets a record that says so, in time, and goes on."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from paretune.harness.records import Outcome, Procedure, Trial
from paretune.harness.runner import run_trial

QUICK = Procedure(num_warmup=0, min_iterations=1, max_iterations=1, timeout_s=120, check_output=False)

USER_CODE = '''
"""A user's own benchmark beside files with very ordinary names."""
import ctypes, os, signal, subprocess, sys, time
from pathlib import Path

import attention, strategies
import torch

assert attention.MINE and strategies.MINE


class Toy(torch.nn.Module):
    def __init__(self, action):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.action = action

    def forward(self, x):
        exec(self.action)
        return self.layer(x)


def make(action="pass"):
    torch.manual_seed(0)
    return Toy(action), {"x": torch.ones(1, 4)}
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user project")
    (folder / "bench.py").write_text(USER_CODE)
    for name in ("attention", "strategies", "harness"):
        (folder / f"{name}.py").write_text("MINE = True\n")
    return folder


def trial(place, action: str, **fields) -> Trial:
    workload = {"name": f"{place / 'bench.py'}:make", "arguments": {"action": action}}
    return Trial(workload=workload, device="cpu", procedure=QUICK, **fields)


@pytest.mark.parametrize(
    ("action", "outcome", "told"),
    [
        ("pass", Outcome.COMPLETE, ""),
        ("sys.stdout.write('x' * 2**20); sys.stderr.write('y' * 2**23); print('{}')", Outcome.COMPLETE, ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", Outcome.CRASHED, "SIGKILL in phase forward"),
        ("ctypes.string_at(0)", Outcome.CRASHED, "SIGSEGV"),
        ("os._exit(0)", Outcome.CRASHED, "status 0 and no readable result"),
        ("os._exit(7)", Outcome.CRASHED, "status 7"),
        ("sys.exit('bye')", Outcome.CRASHED, "bye"),
        ("raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')", Outcome.OOM, "2.00 GiB"),
        ("raise MemoryError('no more')", Outcome.OOM_HOST, "no more"),
        ("raise ValueError('shapes ' + 'x' * 100000)", Outcome.CRASHED, "ValueError"),
        ("torch.empty(2**62, dtype=torch.uint8)", Outcome.OOM_HOST, "allocate"),
    ],
)
def test_each_way_to_end_is_its_own_outcome(place, action, outcome, told):
    record = run_trial(trial(place, action))
    assert record.outcome is outcome, record.reason
    assert told in (record.reason or "")
    assert record.plan == "resident" and record.environment["versions"]["torch"]


def test_a_hanging_child_is_ended_with_all_it_started(place, tmp_path):
    mark = tmp_path / "grandchild"
    action = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"p = subprocess.Popen(['sleep', '600']); Path({str(mark)!r}).write_text(str(p.pid)); time.sleep(600)"
    )
    slow = Procedure(num_warmup=0, min_iterations=1, timeout_s=20, check_output=False)
    record = run_trial(Trial(workload=trial(place, action).workload, device="cpu", procedure=slow))
    assert record.outcome is Outcome.TIMEOUT and "within 20 s in phase forward" in record.reason
    assert is_gone(int(mark.read_text()))


def is_gone(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_garbage_and_half_a_result_are_no_result(place, tmp_path):
    for index, text in enumerate(["{", '{"schema": 1, "kind": "mea', "[]", '{"schema": 1}']):
        action = f"Path(sys.argv[0]); Path('{tmp_path}/{index}/result.json').write_text({text!r}); os._exit(0)"
        record = run_trial(trial(place, action), folder=tmp_path / str(index))
        assert record.outcome is Outcome.CRASHED and "no readable result" in record.reason


def test_oom_keeps_the_size_and_what_was_seen_before(place):
    record = run_trial(trial(place, "raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')"))
    assert record.oom["requested_bytes"] == 2 << 30 and record.oom["phase"] == "forward"
    assert "load" in record.phases


def test_a_spawned_child_gets_the_environment_it_asks_for(place):
    options = {"environment": {"PARETUNE_TEST_WORD": "seen"}}
    action = "assert os.environ['PARETUNE_TEST_WORD'] == 'seen'"
    record = run_trial(trial(place, action, options=options))
    assert record.outcome is Outcome.COMPLETE, record.reason


@pytest.mark.parametrize("isolation", ["fork_server", "spawn"])
def test_a_child_has_the_environment_that_its_parent_has_now(place, monkeypatch, isolation):
    run_trial(trial(place, "pass"), isolation=isolation)
    wanted = {"CUDA_VISIBLE_DEVICES": "3", "HF_HOME": str(place), "TORCHINDUCTOR_CACHE_DIR": "/x", "MY_WORD": "now"}
    wanted |= {"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HOME", raising=False)
    action = f"assert 'HOME' not in os.environ; assert os.environ.items() >= {wanted!r}.items();"
    action += "import huggingface_hub.constants as c; assert c.HF_HOME == os.environ['HF_HOME']"
    record = run_trial(trial(place, action), isolation=isolation)
    assert record.outcome is Outcome.COMPLETE, record.reason
    assert record.environment["settings"].items() >= {"CUDA_VISIBLE_DEVICES": "3", "OMP_NUM_THREADS": "1"}.items()


PARENT = """
import sys
from pathlib import Path
sys.path.insert(0, {support!r})
from paretune.harness.records import Procedure, Trial
from paretune.harness.runner import run_trial
action = "Path({mark!r}).write_text(str(os.getpid())); time.sleep(600)"
workload = {{"name": {bench!r}, "arguments": {{"action": action}}}}
procedure = Procedure(num_warmup=0, check_output=False)
run_trial(Trial(workload=workload, device="cpu", procedure=procedure), isolation={isolation!r})
"""


@pytest.mark.parametrize("isolation", ["fork_server", "spawn"])
def test_no_child_outlives_a_killed_parent(place, tmp_path, isolation):
    mark = tmp_path / "pid"
    code = PARENT.format(support="", mark=str(mark), bench=f"{place / 'bench.py'}:make", isolation=isolation)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=environment)
    for _ in range(900):
        if mark.exists() and mark.read_text():
            break
        time.sleep(0.1)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert is_gone(int(mark.read_text()))


def test_a_users_folder_with_names_like_ours_runs_unharmed_from_the_command_line(place):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "paretune.harness",
            "run",
            "bench:make",
            "--device",
            "cpu",
            "--iterations",
            "1",
            "--format",
            "json",
        ],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert '"outcome":"complete"' in done.stdout
