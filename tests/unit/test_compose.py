"""The compose files of docs/compose: their commands, their configurations and their promises fit the program."""

import re
from typing import Any, Final

import click
import pytest
import yaml

from batchkiln.cli.main import program
from batchkiln.config import load_config
from batchkiln_service.config import ServiceConfig
from support.compose_files import FOLDER, merged

PATH: Final = FOLDER / "compose.yaml"
COMPOSE: Final = merged("compose.yaml", "compose.override.yaml")  # what Docker Compose reads without COMPOSE_FILE
STUDIO: Final = merged("compose.yaml", "studio.yaml")
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
OURS: Final = sorted(name for name, service in SERVICES.items() if service["image"] == "batchkiln")
CONFIG: Final = PATH.with_name("batchkiln.yaml")
SERVICE: Final = PATH.with_name("service.yaml")
SECRETS: Final = ("KILN_PASSWORD", "KILN_TOKEN")
DOCKERFILE: Final = PATH.parents[2] / SERVICES["migrate"]["build"]["dockerfile"]
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
    assert {"USER 10001", "STOPSIGNAL SIGTERM", 'ENTRYPOINT ["batchkiln"]'} <= set(lines)
    assert all(SERVICES[name]["volumes"][0].endswith(":/data") for name in OURS)


def test_configurations_are_mounted_where_the_services_read_them() -> None:
    """They are files beside the compose file, which a container cannot change."""
    for name in OURS:
        source, target, options = SERVICES[name]["volumes"][-1].split(":")
        asked = SERVICES[name]["command"][2] if name == "service" else SERVICES[name]["environment"]["BATCHKILN_CONFIG"]

        assert (PATH.parent / source).resolve() == (SERVICE if name == "service" else CONFIG)
        assert target == asked
        assert options.split(",")[0] == "ro"


def test_one_service_builds_the_image_of_all() -> None:
    """Docker Compose builds in parallel, and two builds of one name collide; no registry has the image."""
    assert OURS == ["dashboard", "migrate", "service", "worker-1", "worker-2"]
    assert [name for name, service in SERVICES.items() if "build" in service] == ["migrate"]
    assert {SERVICES[name].get("pull_policy") for name in OURS if name != "migrate"} == {"never"}
    assert "pull_policy" not in SERVICES["migrate"]


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - {"migrate"}))
def test_services_that_run_for_ever_are_watched_and_started_again(name: str) -> None:
    """Each has a health check, and a crash or a restart of the machine does not end it."""
    assert SERVICES[name]["restart"] == "unless-stopped"
    kind, *words = SERVICES[name]["healthcheck"]["test"]

    assert words
    assert kind == "CMD-SHELL" or " " not in "".join(words)  # Podman's service for Docker Compose splits the others


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
    assert profile.base_url == f"{service.public_url}/api/v1"
    assert profile.time_scale == service.time_scale
    assert f"http://127.0.0.1:{service.operator_port}/health" in SERVICES["service"]["healthcheck"]["test"][-1]


def test_each_secret_is_known_to_those_that_need_it_alone() -> None:
    """The token is the dashboard's, the password that of who opens the queue, and API keys are the workers'."""
    knows = {
        name: {secret for secret in ("KILN_TOKEN", "KILN_PASSWORD", "KEY_") if secret in str(service)}
        for name, service in SERVICES.items()
    }

    assert knows == {
        "postgres": {"KILN_PASSWORD"},
        "migrate": {"KILN_PASSWORD"},
        "service": set(),
        "worker-1": {"KILN_PASSWORD", "KEY_"},
        "worker-2": {"KILN_PASSWORD", "KEY_"},
        "dashboard": {"KILN_PASSWORD", "KILN_TOKEN"},
    }


def test_real_service_takes_the_place_of_the_local_one() -> None:
    """No local service and no key of one is left; the workers alone read the API keys, which are files."""
    services = STUDIO["services"]
    config = load_config(FOLDER / "studio-batchkiln.yaml", {})
    places = {str(key.file) for account in config.profile(None).accounts for key in account.keys}

    assert services.keys() == SERVICES.keys() - {"service"}
    assert "KEY_" not in str(services)
    assert [name for name, each in services.items() if "service" in each.get("depends_on", {})] == []
    assert places == {f"/run/secrets/{name}" for name in STUDIO["secrets"]}
    assert {name for name, each in services.items() if "secrets" in each} == set(WORKERS)
    for name in (*WORKERS, "dashboard"):
        assert services[name]["volumes"] == ["data:/data", "./studio-batchkiln.yaml:/etc/batchkiln.yaml:ro,z"]
    assert {tuple(services[name]["secrets"]) for name in WORKERS} == {tuple(STUDIO["secrets"])}


def test_workers_of_a_real_service_share_their_address() -> None:
    """Containers of one machine leave from one; the health checks name each by its container's name."""
    commands = [STUDIO["services"][name]["command"] for name in WORKERS]
    context = click.Context(program)
    command = program.get_command(context, "work")
    assert command is not None

    parsed = [command.make_context("work", list(words[1:]), parent=context).params["egress"] for words in commands]

    assert set(parsed) == {"studio"}
    for name in WORKERS:
        service = STUDIO["services"][name]
        assert service["healthcheck"]["test"][-1] == service["hostname"] == name


def test_key_files_are_neither_committed_nor_part_of_an_image() -> None:
    """They lie beside the compose files."""
    assert {str(secret["file"])[1:] for secret in STUDIO["secrets"].values()} == {"/anna.key", "/ben.key"}
    assert "/docs/compose/*.key" in (FOLDER.parents[1] / ".gitignore").read_text("utf-8").splitlines()
    assert "docs/compose" in (FOLDER.parents[1] / ".dockerignore").read_text("utf-8").splitlines()
