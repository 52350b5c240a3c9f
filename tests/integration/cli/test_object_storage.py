"""`output.dir: s3://…`, judged by an S3 server of others (moto): what is there, whole, once, and paid once."""

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from crash.service_books import Books
from integration.cli.workspace import HURRIED, Result, Workspace, finished
from support.s3_server import CREDENTIALS, Bucket, S3Server, require, s3_server
from support.tcp_gate import Gate, gate

if TYPE_CHECKING:
    import subprocess

SLOW = "profiles:\n  local:\n    time_scale: 100\n"
MANIFEST = """\
version: 1
job: foxes
defaults: {{model: epsilon-2, mode: text-to-image, parameters: {{resolution: 512x512, aspect_ratio: "1:1"}}}}
output: {{dir: "{place}", sidecar: json}}
items:
  - {{id: fox, prompt: a fox}}
  - {{id: owl, prompt: an owl}}
"""
CHAIN = """\
version: 1
job: foxes
defaults: {{model: epsilon-2, mode: text-to-image, parameters: {{resolution: 512x512, aspect_ratio: "1:1"}}}}
output: {{dir: "{place}", sidecar: json}}
items:
  - {{id: fox, prompt: a fox}}
  - {{id: owl, prompt: an owl}}
  - {{id: fox-in-ink, prompt: the fox in ink, mode: image-to-image, inputs: [{{item: fox}}]}}
"""
NAMES = ["out/foxes/fox.json", "out/foxes/fox.png", "out/foxes/owl.json", "out/foxes/owl.png"]
_numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require()
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def bucket(server: S3Server) -> Bucket:
    return server.bucket(f"studio-{next(_numbers)}")


@pytest.fixture
def door(server: S3Server) -> Iterator[Gate]:
    """A proxy before the server, for what befalls a network."""
    port = urlsplit(server.endpoint).port
    assert port is not None
    with gate(port) as opened:
        yield opened


class Studio:
    """A workspace whose outputs go to a bucket, with the credentials in its environment."""

    def __init__(self, workspace: Workspace, bucket: Bucket, config: str) -> None:
        self.workspace = workspace
        self.bucket = bucket
        self.environment = CREDENTIALS | {"XDG_CACHE_HOME": str(workspace.folder / "cache")}
        workspace.configure(config)
        self.write(MANIFEST)

    def write(self, manifest: str, place: str | None = None) -> None:
        text = manifest.format(place=place or f"s3://{self.bucket.name}/out")
        (self.workspace.folder / "foxes.yaml").write_text(text, "utf-8")

    def call(self, *arguments: str) -> Result:
        return self.workspace.call(*arguments, **self.environment)

    @property
    def items(self) -> dict[str, dict[str, Any]]:
        return {item["item"]: item for item in self.call("items", "foxes", "--json").lines}

    def output(self, item: str) -> dict[str, Any]:
        """Return the only file of an item."""
        (found,) = self.items[item]["outputs"]
        return dict(found)

    @property
    def queue(self) -> Path:
        return self.workspace.folder / ".batchkiln" / "queue.db"

    @property
    def unsent(self) -> list[Path]:
        folder = self.workspace.folder / ".batchkiln" / "queue.db.outgoing"
        return [path for path in folder.rglob("*") if path.is_file()]

    def unsent_path(self, name: str) -> Path:
        """Return where the file of an object waits until it is sent."""
        (folder,) = (self.workspace.folder / ".batchkiln" / "queue.db.outgoing").glob("*/foxes")
        return folder / name

    def copy(self, item: str) -> Path:
        """Return the local copy of an item's object."""
        sha256 = str(self.output(item)["sha256"])
        return self.workspace.folder / "cache" / "batchkiln" / "objects" / sha256[:2] / f"{sha256}.png"

    def violations(self, *prompts: str) -> list[str]:
        """Return what the service's own books say of a second charge."""
        books = Books.read(self.workspace.folder / ".batchkiln" / "embedded" / "local")
        return books.violations(prompts or ("a fox", "an owl"))


@pytest.fixture
def studio(workspace: Workspace, server: S3Server, bucket: Bucket) -> Studio:
    return Studio(workspace, bucket, server.configuration() + HURRIED)


@pytest.fixture
def far_studio(workspace: Workspace, server: S3Server, bucket: Bucket, door: Gate) -> Studio:
    """The same behind a proxy, and with a service that takes some tenths of a second."""
    return Studio(workspace, bucket, server.configuration(endpoint=f"http://127.0.0.1:{door.port}") + SLOW)


def test_results_are_objects_with_their_hash(studio: Studio) -> None:
    """Each is recorded with its URL, and nothing stays behind on the disk but a copy."""
    assert studio.call("run", "foxes.yaml").exit == 0

    assert studio.bucket.keys() == NAMES
    output = studio.output("fox")
    assert output["path"] == f"s3://{studio.bucket.name}/out/foxes/fox.png"
    assert studio.bucket.metadata("out/foxes/fox.png") == {"sha256": output["sha256"]}
    assert len(studio.bucket.content("out/foxes/fox.png")) == output["bytes"]
    assert json.loads(studio.bucket.content("out/foxes/fox.json"))["prompt"] == "a fox"
    assert studio.unsent == []


def test_everything_that_reads_results_reads_objects(studio: Studio) -> None:
    """Also once the local copies are gone."""
    studio.call("run", "foxes.yaml")
    for copy in (studio.workspace.folder / "cache").rglob("*.png"):
        copy.unlink()

    exported = studio.call("export", "foxes", "--format", "imagefolder", "--to", "dataset")
    reported = studio.call("report", "foxes", "--json").document
    shown = studio.call("show", "foxes", "fox")

    assert exported.exit == 0, exported.err
    assert len(list((studio.workspace.folder / "dataset").rglob("*.png"))) == 2
    assert studio.call("report", "foxes").exit == 0
    assert reported["items"]["total"] == 2
    assert "data:image/" in (studio.workspace.folder / "foxes-report.html").read_text("utf-8")
    assert f"s3://{studio.bucket.name}/out/foxes/fox.png" in shown.out
    assert "to be written to the job's URL" in shown.out


def test_a_name_that_another_object_has_is_left_alone(studio: Studio) -> None:
    """The file gets the next free name, as in a folder, and `plan` tells beforehand."""
    studio.bucket.put("out/foxes/fox.png", b"somebody else's")

    planned = studio.call("plan", "foxes.yaml")
    ran = studio.call("run", "foxes.yaml")

    assert "foxes/fox.png" in planned.out + planned.err
    assert ran.exit == 0
    assert studio.bucket.content("out/foxes/fox.png") == b"somebody else's"
    output = studio.output("fox")
    assert output["path"].endswith("/out/foxes/fox~2.png")
    assert studio.bucket.metadata("out/foxes/fox~2.png") == {"sha256": output["sha256"]}


@pytest.mark.long
def test_an_item_is_made_from_an_object(studio: Studio) -> None:
    """The image is read back where no local copy is left."""
    studio.call("run", "foxes.yaml")
    for copy in (studio.workspace.folder / "cache").rglob("*.png"):
        copy.unlink()
    studio.write(CHAIN)

    ran = studio.call("run", "foxes.yaml")

    assert ran.exit == 0, ran.err
    assert studio.violations("a fox", "an owl", "the fox in ink") == []
    assert "out/foxes/fox-in-ink.png" in studio.bucket.keys("out")


@pytest.mark.long
def test_object_that_is_gone_is_fetched_again_at_no_cost(studio: Studio) -> None:
    """It has the same content as before."""
    studio.call("run", "foxes.yaml")
    before = studio.bucket.content("out/foxes/fox.png")
    studio.bucket.remove("out/foxes/fox.png")

    found = studio.call("fetch", "foxes", "--json").document
    worked = studio.call("work")

    assert (found["present"], found["items_to_fetch"]) == (1, 1)
    assert worked.exit == 0, worked.err
    assert studio.bucket.content("out/foxes/fox.png") == before
    assert studio.violations() == []


@pytest.mark.long
@pytest.mark.parametrize("place", ["copies", "unsent"])
def test_object_that_the_service_no_longer_keeps_is_written_from_this_machine(studio: Studio, place: str) -> None:
    """From the copies, or from what a crash left in the folder of unsent files; only what is nowhere is lost."""
    studio.call("run", "foxes.yaml")
    before = studio.bucket.content("out/foxes/fox.png")
    for name in ("fox", "owl"):
        studio.bucket.remove(f"out/foxes/{name}.png")
    fox, owl = (studio.copy(name) for name in ("fox", "owl"))
    owl.write_bytes(bytes(owl.stat().st_size))  # its hash is another
    if place == "unsent":
        fox.rename(studio.unsent_path("fox.png"))
    with closing(sqlite3.connect(studio.queue)) as queue, queue:
        queue.execute("UPDATE attempt SET generation_created_at = generation_created_at - 15 * 86400000")

    found = studio.call("fetch", "foxes", "--json").document
    worked = studio.call("work")

    assert (found["items_to_fetch"], [lost["item"] for lost in found["lost"]]) == (1, ["owl"])
    assert worked.exit == 0, worked.err
    assert studio.bucket.content("out/foxes/fox.png") == before
    assert studio.items["fox"]["state"] == "done"
    assert studio.violations() == []


def test_redo_keeps_the_earlier_object(studio: Studio) -> None:
    """Each version has a name of its own."""
    studio.call("run", "foxes.yaml")
    studio.call("redo", "foxes", "fox", "--yes")

    assert studio.call("work", "--yes").exit == 0

    assert {"out/foxes/fox.png", "out/foxes/fox.v2.png"} <= set(studio.bucket.keys())


@pytest.mark.parametrize("place", ["s3://me:canary-pass@studio/out", "s3://studio/out?key=canary-pass"])
def test_a_url_with_a_secret_is_refused(studio: Studio, place: str) -> None:
    """It reaches no screen and no database, and nothing is enqueued (Law 8)."""
    studio.write(MANIFEST, place)

    ran = studio.call("run", "foxes.yaml")

    assert ran.exit == 2
    assert "`output.dir`: the URL" in ran.err
    assert "canary-pass" not in ran.out + ran.err
    queue = studio.workspace.folder / ".batchkiln" / "queue.db"
    assert not queue.exists() or b"canary-pass" not in queue.read_bytes()


def test_credentials_reach_neither_database_nor_log(studio: Studio) -> None:
    """They come from the environment (Law 8)."""
    ran = studio.call("run", "foxes.yaml", "-vv")

    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in ran.out + ran.err
    with closing(sqlite3.connect(studio.workspace.folder / ".batchkiln" / "queue.db")) as queue:
        assert not [line for line in queue.iterdump() if CREDENTIALS["AWS_SECRET_ACCESS_KEY"] in line]


@pytest.mark.parametrize(
    ("place", "sentence"),
    [("s3://there-is-no-such-bucket/out", "there is no such bucket"), ("nowhere://studio/out", "nowhere")],
)
def test_a_place_that_cannot_be_written_costs_nothing(studio: Studio, place: str, sentence: str) -> None:
    """The run ends before anything is sent, and says why."""
    studio.write(MANIFEST, place)

    ran = studio.call("run", "foxes.yaml")

    assert ran.exit == 2
    assert sentence in " ".join(ran.err.split())
    assert "Nothing was sent" in ran.err
    assert studio.items["fox"]["attempts"] == 0


def test_doctor_tries_the_place(studio: Studio) -> None:
    """Before a run does."""
    studio.call("enqueue", "foxes.yaml")
    fine = studio.call("doctor")
    studio.bucket.client.delete_bucket(Bucket=studio.bucket.name)
    gone = studio.call("doctor")

    assert f"s3://{studio.bucket.name}/out is writable, and gives each name once" in fine.out
    assert "there is no such bucket" in gone.out + gone.err


def started(studio: Studio) -> "subprocess.Popen[str]":
    """Begin a run, and return its process once something is paid and its file is not yet there."""
    process = studio.workspace.start("run", "foxes.yaml", "-v", **studio.environment)
    assert process.stderr is not None
    for line in process.stderr:
        if "attempt_sent" in line:
            return process
    raise AssertionError("nothing was sent")


@pytest.mark.long
def test_storage_that_is_gone_ends_the_run_and_the_next_one_sends(far_studio: Studio, door: Gate) -> None:
    """What was paid is whole on the disk meanwhile, and is told; nothing is charged again."""
    process = started(far_studio)
    door.refuse()

    ended = finished(process)

    assert ended.exit != 0
    assert "complete in" in ended.err
    assert "nothing is charged again" in " ".join(ended.err.split())
    assert len([path for path in far_studio.unsent if path.suffix == ".png"]) >= 1
    assert far_studio.items["fox"]["state"] == "downloading"
    assert far_studio.bucket.keys("out/foxes") == []
    door.mend()
    assert far_studio.call("run", "foxes.yaml").exit == 0
    assert far_studio.bucket.keys("out") == NAMES
    assert far_studio.violations() == []
    assert far_studio.unsent == []


@pytest.mark.long
def test_staged_files_move_with_the_queue(far_studio: Studio, door: Gate) -> None:
    """The new queue's next run sends them, without the service."""
    process = started(far_studio)
    door.refuse()
    finished(process)
    staged = {path.name: path.read_bytes() for path in far_studio.unsent if path.suffix == ".png"}
    door.mend()
    moved_to = far_studio.queue.with_name("moved.db")

    moved = far_studio.call("queue", "copy", str(far_studio.queue), str(moved_to), "--json").document
    left = far_studio.unsent
    sent = far_studio.call("work", "--queue", str(moved_to), "--only", "no-such-item")

    assert (moved["staged"], moved["staged_elsewhere"], moved["staged_left"]) == (len(staged), [], [])
    assert staged
    assert left == []
    assert {name: far_studio.bucket.content(f"out/foxes/{name}") for name in staged} == staged, sent.err
    assert far_studio.violations() == []


@pytest.mark.long
def test_killed_while_sending(far_studio: Studio, door: Gate) -> None:
    """Bytes that are on their way make no half object, and the next run sends them."""
    process = started(far_studio)
    door.hold()
    assert process.stderr is not None
    for line in process.stderr:
        if "file_staged" in line:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    door.mend()

    assert far_studio.call("run", "foxes.yaml").exit == 0

    assert far_studio.bucket.keys("out") == NAMES
    assert far_studio.violations() == []
