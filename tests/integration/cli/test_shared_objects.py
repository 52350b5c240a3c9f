"""A queue in PostgreSQL that several machines use, with object storage as the place of results and images."""

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from PIL import Image

from batchkiln.store.location import DatabaseUrl
from batchkiln.store.postgres.connecting import connect
from integration.cli.workspace import HURRIED, Result, Workspace
from support import postgres
from support.s3_server import CREDENTIALS, Bucket, S3Server, require, s3_server

pytestmark = pytest.mark.postgres

WITH_IMAGE = """\
version: 1
job: owls
defaults:
  model: epsilon-2
  mode: image-to-image
  parameters: {resolution: 512x512, aspect_ratio: "1:1"}
output: {dir: owls}
items:
  - {id: owl, prompt: owl, inputs: [owl.png]}
  - {id: owl-in-ink, prompt: the owl in ink, inputs: [{item: owl}]}
"""
_numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require()
    postgres.require()
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def bucket(server: S3Server) -> Bucket:
    return server.bucket(f"fleet-{next(_numbers)}")


class Machines:
    """Machines by their names, each with a disk of its own."""

    def __init__(self, folder: Path, url: DatabaseUrl, server: S3Server) -> None:
        self.folder = folder
        self.url = url
        self.server = server
        self.made: list[Workspace] = []

    def machine(self, name: str, *, shared_dir: str) -> Workspace:
        (self.folder / name).mkdir()
        made = Workspace(self.folder / name)
        made.configure(
            f"queue: {self.url.secret}\nallow_lost_commits: true\nshared_dir: {shared_dir}\n"
            f"{self.server.configuration()}{HURRIED}"
        )
        self.made.append(made)
        return made


def call(machine: Workspace, *arguments: str) -> Result:
    return machine.call(*arguments, **CREDENTIALS, XDG_CACHE_HOME=str(machine.folder / "cache"))


@pytest.fixture
def machines(tmp_path: Path, server: S3Server) -> Iterator[Machines]:
    with postgres.server().database() as url:
        made = Machines(tmp_path, url, server)
        yield made
        for each in made.made:
            each.end_all()


@pytest.mark.long
def test_a_machine_runs_what_another_one_enqueued(machines: Machines, bucket: Bucket) -> None:
    """Images are copied by their content when they are enqueued, and results are read from anywhere."""
    one, two = (machines.machine(name, shared_dir=f"s3://{bucket.name}/all") for name in ("one", "two"))
    Image.new("RGB", (8, 8), (200, 60, 30)).save(one.folder / "owl.png")
    (one.folder / "owls.yaml").write_text(WITH_IMAGE, "utf-8")

    enqueued = call(one, "enqueue", "owls.yaml")
    (one.folder / "owl.png").unlink()
    worked = call(two, "work")

    assert enqueued.exit == 0, enqueued.err
    assert worked.exit == 0, worked.err
    found = {item["item"]: item for item in call(one, "items", "owls", "--json").lines}
    assert [item["state"] for item in found.values()] == ["done", "done"]
    assert found["owl"]["outputs"][0]["path"] == f"s3://{bucket.name}/all/owls/owls/owl.png"
    assert {"all/owls/owls/owl.png", "all/owls/owls/owl-in-ink.png"} <= set(bucket.keys("all"))
    assert len(bucket.keys("all/.inputs/")) == 1
    assert len(bucket.keys("all/.batchkiln/")) == 1
    with closing(connect(machines.url)) as session:
        (stored,), (path,), _ = session.execute(
            "SELECT output_dir FROM job UNION ALL (SELECT path FROM output ORDER BY path DESC)"
        )
    assert (stored, path) == ("owls", "owls/owls/owl.png")
    assert call(one, "report", "owls").exit == 0


def test_another_place_is_refused(machines: Machines, bucket: Bucket) -> None:
    """Its results would be where the other machines do not look: nothing is enqueued."""
    one = machines.machine("one", shared_dir=f"s3://{bucket.name}/all")
    two = machines.machine("two", shared_dir=f"s3://{bucket.name}/else")
    assert call(one, "enqueue", one.manifest()).exit == 0

    enqueued = call(two, "enqueue", two.manifest("wolves"))

    assert enqueued.exit == 2
    assert "is not the folder that" in " ".join(enqueued.err.split())
    assert [job["job"] for job in call(one, "status", "--json").document["jobs"]] == ["foxes"]


@pytest.mark.parametrize(
    ("shared_dir", "sentence"),
    [
        ("memory://all", "cannot create an object on the condition that its name is free"),
        ("s3://there-is-no-such-bucket/all", "there is no such bucket"),
    ],
)
def test_a_place_that_gives_no_name_once_is_refused(machines: Machines, shared_dir: str, sentence: str) -> None:
    """Two workers could overwrite each other's results."""
    one = machines.machine("one", shared_dir=shared_dir)

    enqueued = call(one, "enqueue", one.manifest())

    assert enqueued.exit == 2
    assert sentence in " ".join(enqueued.err.split())


def test_a_private_disk_is_refused(machines: Machines, bucket: Bucket) -> None:
    """The other machines could not read the results."""
    one = machines.machine("one", shared_dir=f"s3://{bucket.name}/all")
    text = (one.folder / one.manifest()).read_text("utf-8").replace("dir: out", f"dir: {one.folder}/own")
    (one.folder / "foxes.yaml").write_text(text, "utf-8")

    enqueued = call(one, "enqueue", "foxes.yaml")

    assert enqueued.exit == 2
    assert "is not below" in enqueued.err


@pytest.mark.long
def test_an_image_under_whose_hash_something_else_stands_is_refused(machines: Machines, bucket: Bucket) -> None:
    """Both are named, and nothing is enqueued."""
    one = machines.machine("one", shared_dir=f"s3://{bucket.name}/all")
    Image.new("RGB", (8, 8), (200, 60, 30)).save(one.folder / "owl.png")
    (one.folder / "owls.yaml").write_text(WITH_IMAGE, "utf-8")
    assert call(one, "enqueue", "owls.yaml").exit == 0
    (key,) = bucket.keys("all/.inputs/")
    bucket.put(key, b"something else")
    (one.folder / "owls.yaml").write_text(WITH_IMAGE.replace("job: owls", "job: more-owls"), "utf-8")

    enqueued = call(one, "enqueue", "owls.yaml")

    assert enqueued.exit == 2
    said = " ".join(enqueued.err.split())
    assert f"s3://{bucket.name}/{key}" in said
    assert "owl.png" in said
    assert [job["job"] for job in call(one, "status", "--json").document["jobs"]] == ["owls"]
