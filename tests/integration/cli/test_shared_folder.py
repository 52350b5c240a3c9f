"""A queue in PostgreSQL that several machines use: each mounts the folder of results and images at its own place."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from batchkiln.store.location import DatabaseUrl
from batchkiln.store.postgres.connecting import connect
from integration.cli.workspace import HURRIED, Workspace
from support import postgres

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
"""


@pytest.fixture
def url() -> Iterator[DatabaseUrl]:
    """An empty queue."""
    postgres.require()
    with postgres.server().database() as lent:
        yield lent


class Machines:
    """Machines by their names; the folder `shared` is what those with a mount share."""

    def __init__(self, folder: Path, url: DatabaseUrl) -> None:
        self.folder = folder
        self.url = url
        self.made: list[Workspace] = []
        (folder / "shared").mkdir()

    def machine(self, name: str, *, shared_dir: str | None) -> Workspace:
        """Make a machine. `shared_dir` is relative to its folder, and leads to `shared` if it is `mnt`."""
        (self.folder / name).mkdir()
        if shared_dir == "mnt":
            (self.folder / name / "mnt").symlink_to(self.folder / "shared")
        made = Workspace(self.folder / name)
        named = f"shared_dir: {shared_dir}\n" if shared_dir else ""
        made.configure(f"queue: {self.url.secret}\nallow_lost_commits: true\n{named}{HURRIED}")
        self.made.append(made)
        return made


@pytest.fixture
def machines(tmp_path: Path, url: DatabaseUrl) -> Iterator[Machines]:
    """No machine yet; all have their state in one folder."""
    made = Machines(tmp_path, url)
    yield made
    for each in made.made:
        each.end_all()


def test_a_machine_runs_what_another_one_enqueued(machines: Machines) -> None:
    """Images and results are found on each machine, wherever it mounts the folder."""
    one, two = (machines.machine(name, shared_dir="mnt") for name in ("one", "two"))
    (one.folder / "owls.yaml").write_text(WITH_IMAGE, encoding="utf-8")
    Image.new("RGB", (64, 64)).save(one.folder / "owl.png")
    enqueued = one.call("enqueue", "owls.yaml")
    (one.folder / "owl.png").unlink()

    ran = two.call("work")

    assert (enqueued.exit, ran.exit) == (0, 0), enqueued.err + ran.err
    for machine in (one, two):
        item = machine.call("items", "owls", "--json").lines[0]
        path = Path(item["outputs"][0]["path"])
        assert path.is_relative_to(machine.folder / "mnt/owls")
        assert path.is_file()
    with closing(connect(machines.url)) as session:
        (stored,), (output,) = session.execute("SELECT output_dir FROM job UNION ALL SELECT path FROM output")
    assert stored == "owls"
    assert output.startswith("owls/")


def test_a_folder_outside_the_shared_one_is_refused(machines: Machines) -> None:
    """The other machines could not read the results."""
    one = machines.machine("one", shared_dir="mnt")
    (one.folder / "foxes.yaml").write_text(
        (one.folder / one.manifest()).read_text("utf-8").replace("dir: out", f"dir: {one.folder}/own"), encoding="utf-8"
    )

    enqueued = one.call("enqueue", "foxes.yaml")

    assert enqueued.exit == 2
    assert "is not below" in enqueued.err
    assert not one.call("status", "--json").document["jobs"]


@pytest.mark.parametrize(
    ("shared_dir", "sentence", "exit_code"),
    [("own", "is not the folder that", 1), ("gone", "is not there", 1), (None, "Set shared_dir", 2)],
)
def test_a_machine_without_the_shared_folder_is_refused(
    machines: Machines, shared_dir: str | None, sentence: str, exit_code: int
) -> None:
    """A private disk, a place where nothing is mounted, and none named: nothing is enqueued, nothing is made there.

    A folder that is not mounted yet is no mistake (exit code 2): systemd starts the worker again.
    """
    one, two = machines.machine("one", shared_dir="mnt"), machines.machine("two", shared_dir=shared_dir)
    (two.folder / "own").mkdir()
    assert one.call("enqueue", one.manifest()).exit == 0

    enqueued = two.call("enqueue", two.manifest("wolves"))

    assert enqueued.exit == exit_code
    assert sentence in " ".join(enqueued.err.split())
    assert [job["job"] for job in one.call("status", "--json").document["jobs"]] == ["foxes"]
    assert not (two.folder / "gone").exists()


def test_a_machine_that_names_no_shared_folder_drives_nothing(machines: Machines) -> None:
    """Its results would be where nobody looks for them: nothing is sent."""
    one, two = machines.machine("one", shared_dir="mnt"), machines.machine("two", shared_dir=None)
    assert one.call("enqueue", one.manifest()).exit == 0

    ran = two.call("work")

    assert ran.exit == 2
    assert "which the configuration does not name. Set shared_dir" in " ".join(ran.err.split())
    assert sorted(path.name for path in two.folder.iterdir()) == ["batchkiln.yaml"]
