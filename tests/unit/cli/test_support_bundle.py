"""The support bundle: everything that finds a generation, and nothing that opens anything (Law 8)."""

import hashlib
import json
import stat
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from batchkiln.api.reading import read_item_report
from batchkiln.cli.support_bundle import write_bundle
from batchkiln.client import fingerprint
from batchkiln.config import Account, Config, KeySource, Profile
from batchkiln.core.errors import InputError
from batchkiln.core.states import Event
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.presentation.show_documents import shown_item_document
from batchkiln.store import Reader
from support.queue_file import NOW, QueueFile, spec

KEY: Final = "sk-canary-key-0123456789"
SIGNED: Final = "https://files.test/out/fox.png?signature=canary-signature&expires=1"
ASSET: Final = "https://anna:canary-password@assets.test/ast_1?token=canary-token#canary-fragment"
BODY: Final = json.dumps(
    {"inputs": [{"type": "image", "url": ASSET}], "prompt": f"a fox é, see {KEY}"},
    ensure_ascii=False,
    separators=(",", ":"),
).encode()
PLAIN: Final = b'{"model":"epsilon-2","prompt":"a fox \\u00e9"}'
SECRETS: Final = (KEY, "canary", "anna", "/home/")


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueFile]:
    opened = QueueFile(tmp_path / "queue.db")
    yield opened
    opened.connection.close()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "key").write_text(KEY, "utf-8")
    account = Account("main", (KeySource(env="NO_SUCH_KEY"), KeySource(file=str(tmp_path / "key"))))
    return Config({"local": Profile("local", base_url="https://api.test/v1", accounts=(account,))}, "local")


def attempt(queue: QueueFile, body: bytes, *, generation_id: str) -> int:
    """Send the fox with these bytes; what was sent is never edited, so the guard is lifted for the test."""
    attempt_id = queue.send("fox", generation_id=generation_id)
    (guard,) = queue.all("SELECT sql FROM sqlite_schema WHERE name = 'attempt_is_never_edited'")[0]
    queue.connection.execute("DROP TRIGGER attempt_is_never_edited")
    queue.connection.execute("UPDATE attempt SET body = ? WHERE id = ?", (body, attempt_id))
    queue.connection.execute(guard)
    return attempt_id


def told_of_everything(queue: QueueFile) -> None:
    """An item with two attempts, whose texts hold whatever must not be given away."""
    queue.apply([spec("fox", metadata=json.dumps({"source": f"/home/anna/my notes/{KEY}.txt"}))])
    queue.end(attempt(queue, PLAIN, generation_id="gen-1"), "failed")
    queue.move("fox", Event.GENERATION_FAILED, code="generation_failed")
    attempt(queue, BODY, generation_id="gen-2")
    detail = {"reason": f"no reply from {SIGNED}", "header": f"Bearer {KEY}x", "path": "/home/anna/out/fox.png", KEY: 1}
    item_id = queue.item("fox")["id"]
    queue.connection.execute(
        "INSERT INTO history (at, job_id, item_id, kind, detail) VALUES (?, 1, ?, 'outcome_unknown', ?)",
        (NOW, item_id, json.dumps(detail)),
    )
    queue.connection.execute("UPDATE item SET error_code = 'odd', error_message = ?", (f"{SIGNED} {KEY}",))


def bundle(queue: QueueFile, config: Config, path: Path) -> dict[str, bytes]:
    told = read_item_report(
        Reader(queue.connection), config, "birds", "fox", from_milliseconds(NOW) + timedelta(hours=2)
    )
    write_bundle(path, told, dict(shown_item_document(told.detail, told.explanation, told.context.wait)), config)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_no_key_and_no_signed_link_is_in_any_file(queue: QueueFile, config: Config, tmp_path: Path) -> None:
    """Wherever it stands: in a body, an event, an error, a name of a field, a column, a link's user. Law 8."""
    told_of_everything(queue)

    files = bundle(queue, config, tmp_path / "support.zip")

    assert set(files) == {
        "README.txt",
        "item.json",
        "request-1.json",
        "request-2.json",
        "configuration.json",
        "versions.json",
    }
    found = [(name, secret) for name, content in files.items() for secret in SECRETS if secret.encode() in content]
    assert found == []
    assert str(tmp_path).encode() not in b"".join(files.values())


def test_requests_are_there_to_the_byte(queue: QueueFile, config: Config, tmp_path: Path) -> None:
    """The bundle has the hash of the sent body, and says if a link's signature was removed."""
    told_of_everything(queue)

    files = bundle(queue, config, tmp_path / "support.zip")
    first, second = json.loads(files["item.json"])["attempts_made"]

    assert files["request-1.json"] == PLAIN
    assert (first["body_file_is_exact"], second["body_file_is_exact"]) == (True, False)
    for made, body in ((first, PLAIN), (second, BODY)):
        assert (made["body_sha256"], made["body_bytes"]) == (hashlib.sha256(body).hexdigest(), len(body))
    assert json.loads(files["request-2.json"]) == {
        "inputs": [{"type": "image", "url": "https://assets.test/ast_1"}],
        "prompt": "a fox é, see [key]",
    }


def test_everything_that_finds_a_generation_is_there(queue: QueueFile, config: Config, tmp_path: Path) -> None:
    """Ids, idempotency keys, key fingerprints, times, the service's errors and the history. Service rule 4.5."""
    told_of_everything(queue)

    files = bundle(queue, config, tmp_path / "support.zip")
    item: dict[str, Any] = json.loads(files["item.json"])
    readme, configuration = files["README.txt"].decode(), json.loads(files["configuration.json"])

    history = [row[0] for row in queue.all("SELECT kind FROM event WHERE item_id IS NOT NULL ORDER BY id")]
    keys = [row[0] for row in queue.all("SELECT idempotency_key FROM attempt ORDER BY number")]
    for text in (*keys, "gen-1", "gen-2", "POST /images", "2027-01-15T08:00:00.000Z"):
        assert text in readme
        assert text in files["item.json"].decode()
    assert [event["event"] for event in item["events"]] == history
    assert item["error"]["code"] == "odd"
    assert "5 credits, which were refunded" in item["charged"]
    assert configuration["key_fingerprints"] == [fingerprint(KEY)]
    assert configuration["base_url"] == "https://api.test/v1"
    assert {"batchkiln", "python", "sqlite", "queue_schema"} <= set(json.loads(files["versions.json"]))


def test_the_file_is_the_persons_own_and_never_written_over(queue: QueueFile, config: Config, tmp_path: Path) -> None:
    """It contains prompts, so only its owner may read it; an existing file is not overwritten."""
    told_of_everything(queue)
    path = tmp_path / "support.zip"
    bundle(queue, config, path)
    before = path.read_bytes()

    with pytest.raises(InputError, match="--bundle"):
        bundle(queue, config, path)

    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_an_item_that_was_never_sent_has_a_bundle(queue: QueueFile, tmp_path: Path) -> None:
    """Without a request; also where the profile is not configured here."""
    queue.apply([spec("fox")], profile="elsewhere")

    files = bundle(queue, Config({}, "local"), tmp_path / "support.zip")

    assert "none: the item was never sent" in files["README.txt"].decode()
    assert json.loads(files["configuration.json"]) == {"profile": "elsewhere", "configured": False}


def test_a_damaged_request_is_given_as_it_is(queue: QueueFile, config: Config, tmp_path: Path) -> None:
    """Whatever the disk gives: the item is held for that, and the support has to see it."""
    queue.apply([spec("fox")])
    attempt(queue, b"\xff{", generation_id="gen-1")

    assert bundle(queue, config, tmp_path / "support.zip")["request-1.json"] == b"\xff{"


def test_a_folder_that_is_not_there_is_reported(queue: QueueFile, config: Config, tmp_path: Path) -> None:
    """The place and the reason."""
    queue.apply([spec("fox")])

    with pytest.raises(InputError, match=r"none/support\.zip.*No such file"):
        bundle(queue, config, tmp_path / "none/support.zip")
