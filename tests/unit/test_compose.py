"""The compose file of docs/compose: its commands, its configurations and its promises fit the program."""

import re
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
CONFIG: Final = PATH.with_name("batchkiln.yaml")
SERVICE: Final = PATH.with_name("service.yaml")
SECRETS: Final = ("KILN_PASSWORD", "KILN_TOKEN")
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
    assert all(SERVICES[name]["volumes"][0].endswith(":/data") for name in OURS)


def test_configurations_are_mounted_where_the_services_read_them() -> None:
    """They are files beside the compose file, which a container cannot change."""
    for name in OURS:
        source, target, options = SERVICES[name]["volumes"][1].split(":")
        asked = SERVICES[name]["command"][2] if name == "service" else SERVICES[name]["environment"]["BATCHKILN_CONFIG"]

        assert (PATH.parent / source).resolve() == (SERVICE if name == "service" else CONFIG)
        assert target == asked
        assert options.split(",")[0] == "ro"


def test_services_share_one_image() -> None:
    """It has a name, so that it is built once for all of them."""
    assert {SERVICES[name]["image"] for name in OURS} == {"batchkiln"}


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - {"migrate"}))
def test_services_that_run_for_ever_are_watched_and_started_again(name: str) -> None:
    """Each has a health check, and a crash or a restart of the machine does not end it."""
    assert SERVICES[name]["restart"] == "unless-stopped"
    assert SERVICES[name]["healthcheck"]["test"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_logs_are_bounded(name: str) -> None:
    """Docker keeps everything without a bound, and workers report their progress for ever; the guide says how much."""
    logging = SERVICES[name]["logging"]
    guide = (PATH.parents[2] / "docs" / "guides" / "containers.md").read_text("utf-8")

    assert logging == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}
    assert "the last 30 MB of each container" in guide


@pytest.mark.parametrize("name", OURS)
def test_services_have_no_power_that_they_do_not_need(name: str) -> None:
    """The image's user needs no capability, and cannot gain one."""
    assert SERVICES[name]["cap_drop"] == ["ALL"]
    assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]


def test_secrets_have_no_default() -> None:
    """Nothing starts without them, in place of one that everybody knows; the message names the file and the page."""
    found = re.findall(r"\$\{(\w+)([^}]*)\}", PATH.read_text("utf-8"))

    assert {name for name, _ in found} == set(SECRETS)
    assert {rest for _, rest in found} == {":?set it in docs/compose/.env, as docs/guides/containers.md says"}
    assert "/docs/compose/.env" in (PATH.parents[2] / ".gitignore").read_text("utf-8").splitlines()
    guide = (PATH.parents[2] / "docs" / "guides" / "containers.md").read_text("utf-8")
    assert all(f"{name}=%s" in guide for name in SECRETS)


def test_tables_are_made_once_before_anybody_works() -> None:
    """`migrate` waits until the server answers other containers, and is not started again."""
    assert SERVICES["migrate"]["depends_on"]["postgres"] == {"condition": "service_healthy"}
    assert "pg_isready --host " in SERVICES["postgres"]["healthcheck"]["test"][1]
    assert SERVICES["migrate"]["restart"] == "no"
    assert "synchronous_commit=on" in SERVICES["postgres"]["command"]


def test_dashboard_is_for_this_machine_and_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """It listens beyond its container, so it has a token; the port of the machine is on the loopback address."""
    command = SERVICES["dashboard"]["command"]
    monkeypatch.setenv("KILN_TOKEN", "0123456789abcdef" * 3)

    (token,) = load_config(CONFIG, {}).http.digests().values()

    assert token.name == "person"
    assert command[command.index("--host") + 1] == "0.0.0.0"
    assert SERVICES["dashboard"]["ports"] == ["127.0.0.1:8642:8642"]
    assert command[command.index("--public-url") + 1] == "http://localhost:8642"


def test_configurations_are_valid_and_agree() -> None:
    """The workers' accounts are the service's, with the same API keys, at the address where it listens."""
    environment = SERVICES["worker-1"]["environment"]

    profile = load_config(CONFIG, {}).profile(None)
    service = ServiceConfig.model_validate(yaml.safe_load(SERVICE.read_text("utf-8")))

    keys = {account.name: [environment[str(key.env)] for key in account.keys] for account in profile.accounts}
    assert keys == {account.name: [key.value for key in account.key_configs] for account in service.accounts}
    others = SERVICES["dashboard"]["environment"] | SERVICES["migrate"]["environment"]
    assert [name for name in others if name.startswith("KEY_")] == []
    assert profile.base_url == f"{service.public_url}/api/v1"
    assert profile.time_scale == service.time_scale
    assert f"http://127.0.0.1:{service.operator_port}/health" in SERVICES["service"]["healthcheck"]["test"][-1]
