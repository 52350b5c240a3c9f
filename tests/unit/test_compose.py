"""The compose file of docs/compose: its commands, its configurations and its promises fit the program."""

from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from batchkiln.cli.main import program
from batchkiln.config import load_config
from batchkiln_service.config import ServiceConfig

PATH: Final = Path(__file__).resolve().parents[2] / "docs" / "compose" / "compose.yaml"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load(PATH.read_text("utf-8"))
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
OURS: Final = sorted(name for name, service in SERVICES.items() if "build" in service)
DOCKERFILE: Final = PATH.parents[2] / COMPOSE["x-batchkiln"]["build"]["dockerfile"]
WORKERS: Final = sorted(name for name in SERVICES if name.startswith("worker-"))


@pytest.mark.parametrize("name", OURS)
def test_each_command_is_one_of_the_programs(name: str) -> None:
    """Options and names are those that the program takes."""
    command, *arguments = SERVICES[name]["command"]
    context = click.Context(program)
    found = program.get_command(context, command)

    assert found is not None
    found.make_context(command, list(arguments), parent=context)


def test_workers_have_addresses_of_their_own_and_time_to_end() -> None:
    """Each sends from its container's address, ends in order, and is watched by name."""
    egresses = [SERVICES[name]["command"][3] for name in WORKERS]

    assert egresses == WORKERS == ["worker-1", "worker-2"]
    for name in WORKERS:
        assert SERVICES[name]["stop_grace_period"] == "120s"
        assert SERVICES[name]["healthcheck"]["test"][1:] == ["batchkiln", "workers", "--check", name]
        assert SERVICES[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
        assert SERVICES[name]["depends_on"]["postgres"] == {"condition": "service_healthy"}


def test_image_keeps_the_journals_on_the_volume() -> None:
    """What the container file copies is there; queue and journals outlive the containers."""
    lines = DOCKERFILE.read_text("utf-8").splitlines()
    sources = [source for line in lines if line.startswith("COPY ") for source in line.split()[1:-1]]

    assert [source for source in sources if not (PATH.parents[2] / source).exists()] == []
    assert "XDG_STATE_HOME=/data/state" in [word for line in lines if line.startswith("ENV ") for word in line.split()]
    assert "VOLUME /data" in lines
    assert {"USER batchkiln", "STOPSIGNAL SIGTERM", 'ENTRYPOINT ["batchkiln"]'} <= set(lines)
    assert all(mount.endswith(":/data") for name in OURS for mount in SERVICES[name]["volumes"])


def test_tables_are_made_once_before_anybody_works() -> None:
    """`migrate` waits until the server answers other containers, and is not started again."""
    assert SERVICES["migrate"]["depends_on"]["postgres"] == {"condition": "service_healthy"}
    assert "pg_isready --host " in SERVICES["postgres"]["healthcheck"]["test"][1]
    assert SERVICES["migrate"]["restart"] == "no"
    assert "synchronous_commit=on" in SERVICES["postgres"]["command"]


def test_dashboard_is_for_this_machine_and_needs_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It listens beyond its container, so it has a token; the port of the machine is on the loopback address."""
    path = tmp_path / "batchkiln.yaml"
    path.write_text(COMPOSE["configs"]["batchkiln"]["content"], "utf-8")
    default = COMPOSE["x-batchkiln"]["environment"]["KILN_TOKEN"].partition(":-")[2].rstrip("}")
    command = SERVICES["dashboard"]["command"]
    monkeypatch.setenv("KILN_TOKEN", default)

    (token,) = load_config(path, {}).http.digests().values()

    assert token.name == "person"
    assert command[command.index("--host") + 1] == "0.0.0.0"
    assert SERVICES["dashboard"]["ports"] == ["127.0.0.1:8642:8642"]
    assert command[command.index("--public-url") + 1] == "http://localhost:8642"


def test_configurations_are_valid_and_agree(tmp_path: Path) -> None:
    """The workers' accounts are the service's, with the same API keys, at the address where it listens."""
    path = tmp_path / "batchkiln.yaml"
    path.write_text(COMPOSE["configs"]["batchkiln"]["content"], "utf-8")
    environment = COMPOSE["x-batchkiln"]["environment"]

    profile = load_config(path, {}).profile(None)
    service = ServiceConfig.model_validate(yaml.safe_load(COMPOSE["configs"]["service"]["content"]))

    keys = {account.name: [environment[str(key.env)] for key in account.keys] for account in profile.accounts}
    assert keys == {account.name: [key.value for key in account.key_configs] for account in service.accounts}
    assert profile.base_url == f"{service.public_url}/api/v1"
    assert profile.time_scale == service.time_scale
