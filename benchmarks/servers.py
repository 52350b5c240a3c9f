"""Servers for measurements, started on sockets in a temporary folder: Debian's own, with their usual settings."""

import contextlib
import getpass
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

STARTS_WITHIN_SECONDS: Final = 30.0


@contextlib.contextmanager
def postgres(folder: Path, *settings: str) -> Iterator[str]:
    """Run PostgreSQL as it is by default, which is synced at each commit; give its connection string.

    `settings` are further ones, as NAME=VALUE.
    """
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    as_user = user if getpass.getuser() == "root" else []
    if as_user:
        shutil.chown(folder, "postgres")
    data, binaries = folder / "data", _postgres_binaries()
    initdb = [*as_user, str(binaries / "initdb"), "-D", str(data), "-U", "bench", "-A", "trust", "-E", "UTF8"]
    subprocess.run(initdb, check=True, capture_output=True, cwd=folder)
    server = [*as_user, str(binaries / "postgres"), "-D", str(data), "-k", str(folder), "-h", ""]
    server += [part for setting in settings for part in ("-c", setting)]
    with running(server, folder / ".s.PGSQL.5432"):
        yield f"host={folder} user=bench dbname=postgres"


def _postgres_binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise FileNotFoundError("postgresql")
    return found[-1].parent


@contextlib.contextmanager
def running(command: list[str], address: Path) -> Iterator[None]:
    """Run a server until the end of the block; begin it once it listens at its socket."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            give_up_at = time.monotonic() + STARTS_WITHIN_SECONDS
            while not _listens(address):
                if server.poll() is not None or time.monotonic() > give_up_at:
                    raise RuntimeError(f"{command[0]} did not start")
                time.sleep(0.05)
            yield
        finally:
            server.send_signal(signal.SIGINT)  # which ends PostgreSQL also while somebody is connected


def _listens(address: Path) -> bool:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
        return probe.connect_ex(str(address)) == 0
