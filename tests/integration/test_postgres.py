"""Four workers on one PostgreSQL server: one is killed, the server restarts, the study ends as one worker's would."""

from __future__ import annotations

import getpass
import multiprocessing
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.toy_space import COMPONENTS, WHERE, Machine, question, toy_registry

from paretune.harness.joining import join
from paretune.harness.pareto import pareto
from paretune.harness.records import Record, Trial
from paretune.harness.search.open import open_ledger, study_name
from paretune.harness.storage import masked, open_storage
from paretune.harness.store import Store
from paretune.harness.study import Study

SMALL = {"denoiser": {"stream": True, "keep": True}, "vae": {"tile": True}}
PASSWORD = "secret-7f3a"
MAX_TRIALS = 1000


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).resolve().parent if on_path else None


pytestmark = pytest.mark.skipif(_binaries() is None, reason="no PostgreSQL server binaries")


class Server:
    """A private PostgreSQL server in a folder; PostgreSQL refuses to run as root, so root steps down."""

    def __init__(self, folder: Path) -> None:
        binaries = _binaries()
        assert binaries is not None
        self._bin, self._data = binaries, folder / "data"
        self._user = "postgres" if getpass.getuser() == "root" else None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        folder.mkdir(parents=True)
        (folder / "password").write_text(PASSWORD)
        if self._user:
            entry = pwd.getpwnam(self._user)
            for path in (folder, folder / "password"):
                os.chown(path, entry.pw_uid, entry.pw_gid)
        self._run("initdb", "-D", self._data, "-U", "paretune", "-A", "scram-sha-256", f"--pwfile={folder}/password")
        self.url = f"postgresql+psycopg://paretune:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._bin / program), *map(str, arguments)]
        done = subprocess.run(command, user=self._user, capture_output=True, text=True, check=False, cwd="/")
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        options = f"-p {self.port} -k {self._data} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", self._data / "log", "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-w", "-m", "immediate", "stop")


@pytest.fixture
def server() -> Iterator[Server]:
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    folder.chmod(0o755)
    server = Server(folder / "server")
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def slow(pause_s: float) -> Callable[[Trial], Record]:
    machine = Machine()

    def run(trial: Trial) -> Record:
        time.sleep(pause_s)
        return machine(trial)

    return run


def work(url: str, name: str, output: Path, pause_s: float) -> None:
    import paretune.harness.joining as joining
    from paretune.harness.question import prepare

    joining.prepare = lambda spec: prepare(spec, where=WHERE, components=COMPONENTS)  # type: ignore[assignment]
    join(url, name, output=output, run_trial=slow(pause_s), heartbeat_s=1)


def test_four_workers_a_killed_one_and_a_restart(
    server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fork = multiprocessing.get_context("fork")
    with toy_registry():
        asked = question(search={"sampler": "grid"}, space={"strategies": SMALL}, effort={"max_trials": MAX_TRIALS})
        storage = open_storage(server.url, heartbeat_s=1)
        ledger = open_ledger(asked, storage)
        name = study_name(asked)
        workers = [
            fork.Process(target=work, args=(server.url, name, tmp_path / str(number), 0.2)) for number in range(4)
        ]
        for worker in workers:
            worker.start()
        _wait_until(lambda: ledger.num_run() >= 8)
        victim = workers[0]
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        _wait_until(lambda: ledger.num_run() >= 16)
        server.stop()
        time.sleep(1)
        server.start()
        for worker in workers[1:]:
            worker.join(120)
            assert worker.exitcode == 0
        together = ledger.records()
        storage.engine.dispose()
        alone = _alone(tmp_path / "alone")
    assert {record.plan for record in together} == {record.plan for record in alone}
    assert [r.plan for r in pareto(together)] == [r.plan for r in pareto(alone)]
    kept = "".join(path.read_text() for path in tmp_path.rglob("*.jsonl"))
    said = capfd.readouterr()
    assert PASSWORD not in kept + said.out + said.err
    assert PASSWORD not in masked(server.url)


def _alone(folder: Path) -> list[Record]:
    asked = question(search={"sampler": "grid"}, space={"strategies": SMALL}, effort={"max_trials": MAX_TRIALS})
    ledger = open_ledger(asked, open_storage(None))
    return list(Study(question=asked, store=Store(folder), ledger=ledger, run_trial=Machine()).run().records)


def _wait_until(is_done: Callable[[], bool], limit_s: float = 90) -> None:
    end = time.monotonic() + limit_s
    while not is_done():
        assert time.monotonic() < end, "the workers did not get that far"
        time.sleep(0.1)


def test_a_wrong_password_is_not_repeated_in_the_error(server: Server) -> None:
    with pytest.raises(ValueError, match="cannot be opened") as caught:
        open_storage(server.url.replace(PASSWORD, "wrong-9d1"))
    assert "wrong-9d1" not in str(caught.value)
