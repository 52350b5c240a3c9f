"""Keys and signatures sent over the network appear nowhere else (Law 8)."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from batchkiln.cli.main import program
from batchkiln.logs import configure_logging

from .plan_runner import seeded_secrets
from .scenarios import Options, draw
from .simulated_world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return a world after kills, power cuts, and faults of service and network."""
    return played(tmp_path_factory.mktemp("rough") / "world")


def played(folder: Path) -> World:
    plan = draw(6, Options(days=1.0))
    world = World(folder, plan)
    with seeded_secrets(plan.seed):
        world.play()
    return world


def test_no_secret_is_left_on_the_disk(world: World) -> None:
    """Neither the queue, its log, the outputs nor their sidecars hold a secret, also after kills."""
    graves = world.folder.glob("grave-*")
    sidecars = [path for path in world.program_folder.rglob("i*.json") if b'"prompt"' in path.read_bytes()]

    assert list(world.canaries.left_in([world.program_folder, *graves])) == []
    assert len(world.canaries.secrets) > 10
    assert sidecars


@pytest.mark.long
@pytest.mark.parametrize("log_format", ["auto", "json"])
def test_no_secret_is_reported_by_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str], log_format: str) -> None:
    """The most verbose log holds no secret, also under faults."""
    configure_logging(verbosity=2, log_format="json" if log_format == "json" else "auto")

    world = played(tmp_path / "world")

    told = capsys.readouterr()
    assert "request_troubled" in told.err
    assert not world.canaries.told_by((told.out + told.err).encode())


@pytest.mark.long
@pytest.mark.parametrize("command", ["status", "items job-0", "show job-0 i1"])
@pytest.mark.parametrize("form", ["", " --json"])
def test_no_secret_is_reported_by_a_command(world: World, command: str, form: str) -> None:
    """The output of a command holds neither keys nor signed links."""
    queue = world.program_folder / "queue.db"

    told = CliRunner().invoke(program, [*command.split(), *form.split(), "--queue", str(queue)])

    assert "job-0" in told.output
    assert not world.canaries.told_by(told.output.encode())


def test_a_secret_that_is_left_is_found(world: World, tmp_path: Path) -> None:
    """The search finds one key in one file."""
    (tmp_path / "notes.txt").write_bytes(b"key: " + min(world.canaries.secrets))

    assert len(list(world.canaries.left_in([tmp_path]))) == 1
