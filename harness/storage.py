"""Where studies keep their trials: a SQLite file by default, PostgreSQL or a journal file for many machines."""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

__all__ = ["HEARTBEAT_S", "masked", "open_storage", "repair_journal"]

HEARTBEAT_S = 15
"""Seconds between two signs of life of a running trial; after four missed ones another worker takes the trial over."""

_GRACE = 4
_PROXY_S = 10
_LOCK_S = 10
"""Seconds after which the lock of a writer that was killed is taken over; it is held for milliseconds."""
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
_SECRETS = re.compile(r"(?i)(password|passwd|pwd|sslpassword)=[^&\s]+")


def masked(text: str) -> str:
    """The text with user names and passwords of URLs replaced: the only form in which a URL is shown or kept."""
    return _SECRETS.sub(r"\1=***", _CREDENTIALS.sub("***@", text))


def open_storage(url: str | None, *, heartbeat_s: int | None = None) -> Any:
    """An Optuna storage.

    url: ``sqlite:///file``, ``postgresql+psycopg://...``, ``mysql+...``, a path ending in ``.log`` or ``.journal`` (a
    journal file, also for shared file systems), or ``None`` for memory. On a database server trials get a heartbeat:
    when a worker falls silent its trial is failed and tried once more by another. SQLite and journals have none; there
    a worker that returns closes the trials that dead workers of its machine left open. ``grpc://host:port`` is Optuna's
    proxy in front of a database server, for fleets that would exhaust its connections; it passes no heartbeats on.

    Raises ``ValueError`` whose text holds no password when the URL cannot be used.
    """
    import optuna

    if url is None:
        return optuna.storages.InMemoryStorage()
    if "://" not in url:
        return _open_journal(Path(url))
    if url.startswith("grpc:"):
        return _open_proxy(url)
    interval = None if url.startswith("sqlite") else heartbeat_s or HEARTBEAT_S
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            storage = optuna.storages.RDBStorage(
                url,
                engine_kwargs=_engine_options(url),
                heartbeat_interval=interval,
                grace_period=interval and interval * _GRACE,
                heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=1),
            )
        if url.startswith("sqlite"):
            _write_ahead(storage.engine)
        return storage
    except Exception as error:
        raise ValueError(f"storage {masked(url)} cannot be opened: {masked(str(error))}") from None


def _engine_options(url: str) -> dict[str, Any]:
    """Connections are tested before use, so that a restarted server costs one reconnection and no trial."""
    if url.startswith("sqlite"):
        return {"connect_args": {"timeout": 60}}
    return {"pool_pre_ping": True, "pool_size": 4, "connect_args": {"connect_timeout": 10}}


def _write_ahead(engine: Any) -> None:
    """Commits survive a killed process without waiting for the disk; records are on disk before a trial is told."""
    from sqlalchemy import event

    def configure(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(engine, "connect", configure)
    engine.dispose()


def _open_proxy(url: str) -> Any:
    import optuna

    told = re.fullmatch(r"grpc://(\[[^]@/]+\]|[^:@/]+):([0-9]{1,5})/?", url)
    if told is None:
        raise ValueError(f"storage {masked(url)}: a proxy is grpc://host:port and nothing else; it knows no passwords.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            proxy = optuna.storages.GrpcStorageProxy(host=told[1], port=int(told[2]))
        proxy.wait_server_ready(timeout=_PROXY_S)
    except ImportError as error:
        raise ValueError(
            f"storage {url}: {error.name} is not installed. Run `pip install 'paretune[distributed]'`."
        ) from None
    except ConnectionError:
        raise ValueError(f"storage {url}: no proxy answered within {_PROXY_S} s. Is it running?") from None
    return proxy


def _open_journal(path: Path) -> Any:
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    if path.suffix not in (".log", ".journal"):
        raise ValueError(f"storage {path}: a journal file ends in .log or .journal; databases are URLs with ://.")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = JournalFileOpenLock(str(path), grace_period=_LOCK_S)
    if path.exists():
        lock.acquire()
        try:
            repair_journal(path)
        finally:
            lock.release()
    return optuna.storages.JournalStorage(JournalFileBackend(str(path), lock_obj=lock))


def repair_journal(path: Path) -> Path | None:
    """Take damaged lines (torn by a crash) out of a journal; the file as it was is kept beside it.

    Returns the copy, ``None`` when nothing was damaged. Finished trials on undamaged lines all stay.
    """
    lines = path.read_bytes().split(b"\n")
    whole, tail = lines[:-1], lines[-1]
    good = [line for line in whole if _is_entry(line)]
    if len(good) == len(whole) and not tail:
        return None
    backup = _free_name(path)
    shutil.copyfile(path, backup)
    fresh = path.with_name(f"{path.name}.repaired.{os.getpid()}")
    fresh.write_bytes(b"".join(line + b"\n" for line in good))
    fresh.replace(path)
    return backup


def _is_entry(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _free_name(path: Path) -> Path:
    number = 1
    while (candidate := path.with_name(f"{path.name}.damaged.{number}")).exists():
        number += 1
    return candidate
