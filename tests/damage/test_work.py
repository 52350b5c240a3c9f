"""The real command refuses a damaged queue in a sentence and sends nothing."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest
from filelock import FileLock

from support.programs import environment

from .file_damage import HARMS, PAGE, sound_queue

SOURCE: Final = Path(__file__).parents[2] / "src"
CONFIG: Final = """
default_profile: test
profiles:
  test:
    base_url: http://127.0.0.1:{port}/api/v1
    accounts:
      - {{name: main, keys: [{{file: key}}]}}
      - {{name: second, keys: [{{file: key}}]}}
      - {{name: third, keys: [{{file: key}}]}}
      - {{name: fourth, keys: [{{file: key}}]}}
"""


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """A port where the service would be, and a configuration that names it."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(0)
        (tmp_path / "batchkiln.yaml").write_text(CONFIG.format(port=made.getsockname()[1]))
        (tmp_path / "key").write_text("vk_live_" + "0" * 40)
        yield made


def lose_a_page(path: Path) -> None:
    content = bytearray(path.read_bytes())
    HARMS["zero"](content, 20 * PAGE, Random(1))
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def put_a_wrong_log(path: Path) -> None:
    Path(f"{path}-wal").write_bytes(Random(2).randbytes(5 * PAGE))


@pytest.mark.parametrize("harm", [lose_a_page, empty, put_a_wrong_log])
def test_work_refuses_a_damaged_queue_and_sends_nothing(
    tmp_path: Path, listener: socket.socket, harm: Callable[[Path], None]
) -> None:
    """Exit 2 with the next step; no connection to the service, and no byte changed."""
    path = sound_queue(tmp_path)
    harm(path)
    before = _bytes_of(tmp_path)

    result = _work(tmp_path)

    assert result.returncode == 2, result.stderr
    assert "the queue is damaged" in result.stderr
    assert "restore a backup" in result.stderr
    assert "its -shm away together" in result.stderr
    assert "Traceback" not in result.stderr
    assert json.loads(result.stdout)["exit"] == 2  # the error alone
    assert _bytes_of(tmp_path) == before
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_link_to_a_damaged_queue_hides_nothing(tmp_path: Path, listener: socket.socket) -> None:
    """SQLite follows a link and deletes a wrong log there, so the files beside the target are checked."""
    path = sound_queue(tmp_path)
    put_a_wrong_log(path)
    before = _bytes_of(tmp_path)
    (tmp_path / "link.db").symlink_to("queue.db")

    result = _work(tmp_path, queue="link.db")

    assert result.returncode == 2, result.stderr
    assert "the queue is damaged" in result.stderr
    assert _bytes_of(tmp_path) == before
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_link_to_a_queue_that_is_driven_is_no_second_queue(tmp_path: Path, listener: socket.socket) -> None:
    """Two processes on one queue would keep every limit twice; the lock beside the file is the one that counts."""
    path = sound_queue(tmp_path)
    (tmp_path / "link.db").symlink_to("queue.db")

    with FileLock(f"{path}.lock"):
        result = _work(tmp_path, queue="link.db")

    assert result.returncode == 6, result.stderr
    with pytest.raises(BlockingIOError):
        listener.accept()


def _bytes_of(folder: Path) -> dict[str, bytes]:
    """Return the content of the queue's files, without the index of the log."""
    found = {path.name: path.read_bytes() for path in folder.glob("queue.db*") if not path.name.endswith("-shm")}
    return {name: content for name, content in found.items() if content or name == "queue.db"}


def _work(folder: Path, queue: str = "queue.db") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "batchkiln", "work", "--json", "--queue", queue]
    surroundings = environment(XDG_CONFIG_HOME=str(folder))
    return subprocess.run(
        command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False, timeout=120
    )
