"""The container files: their parts are there, the commands are the program's, and any user may run it."""

import io
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import click
import pytest
import yaml
from dockerfile_parse import DockerfileParser

from batchkiln.cli.main import program
from batchkiln.config import load_config
from batchkiln_service.config import ServiceConfig
from support.one_container import GUIDE, ROOT, configuration, docker_run

PATH: Final = ROOT / "docs" / "containers" / "serve.Dockerfile"
FILES: Final = sorted(PATH.parent.glob("*.Dockerfile"))
IGNORED: Final = ROOT / ".dockerignore"
PROGRAM: Final = PATH.with_name("batchkiln.Dockerfile")


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the file with their values, as Docker's grammar reads them."""
    parser = DockerfileParser(fileobj=io.BytesIO(PATH.read_bytes()))
    return [(each["instruction"], each["value"]) for each in parser.structure if each["instruction"] != "COMMENT"]


def value_of(name: str) -> str:
    (value,) = [value for instruction, value in instructions() if instruction == name]
    return value


def test_everything_that_is_copied_is_there() -> None:
    """Paths are relative to the repository, and the package finds its readme, licence and manual pages."""
    sources = [source for name, value in instructions() if name == "COPY" for source in value.split()[:-1]]

    lists = {"docs/containers/libraries.py", "docs/containers/constraints.txt"}
    assert {"pyproject.toml", "README.md", "LICENSE", "src", "docs", *lists} == set(sources)
    assert [source for source in sources if not (ROOT / source).exists()] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_package_can_be_built_from_what_is_copied(path: Path) -> None:
    """The wheel contains pages of `docs`; without them, the build of an image ends with an error."""
    ignored = IGNORED.read_text("utf-8").splitlines()
    copied = {
        source
        for each in DockerfileParser(fileobj=io.BytesIO(path.read_bytes())).structure
        if each["instruction"] == "COPY"
        for source in each["value"].split()[:-1]
    }
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["shared-data"], *wheel["force-include"], "README.md", "LICENSE"]

    assert [need for need in needed if copied.isdisjoint({need, *map(str, Path(need).parents)})] == []
    assert ignored[1] == "*"
    assert {f"!{source.partition('/')[0]}" for source in copied} == {line for line in ignored if line.startswith("!")}
    left_out = {line for line in ignored[2:] if not line.startswith("!")}
    assert [each for each in (*needed, *copied) if not left_out.isdisjoint({each, *map(str, Path(each).parents)})] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_libraries_are_a_layer_before_the_source(path: Path) -> None:
    """A change of the source does not install them again: they come from the list that is copied before it."""
    steps = [
        (each["instruction"], each["value"])
        for each in DockerfileParser(fileobj=io.BytesIO(path.read_bytes())).structure
        if each["instruction"] in {"COPY", "RUN"}
    ]
    (place,) = (number for number, (_, value) in enumerate(steps) if "-r /src/libraries.txt" in value)

    assert steps[place - 1] == (
        "COPY",
        "pyproject.toml docs/containers/libraries.py docs/containers/constraints.txt /src/",
    )
    assert steps[place][1].count(" -c /src/constraints.txt ") == 1
    assert [value for name, value in steps[: place - 1] if name == "COPY"] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_python_of_an_image_is_that_of_the_tested_versions(path: Path) -> None:
    """The versions of the libraries were tested together with it."""
    tested = (ROOT / "docs/containers/constraints.txt").read_text("utf-8").split("on Python ")[1].split(";")[0]

    assert DockerfileParser(fileobj=io.BytesIO(path.read_bytes())).baseimage == f"python:{tested}-slim"


def test_list_of_libraries_has_those_of_the_extras(tmp_path: Path) -> None:
    """It is that of the package's metadata."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for name in ("pyproject.toml", "docs/containers/libraries.py"):
        shutil.copy(ROOT / name, tmp_path)

    for extras in ("", "postgres,watch"):
        names = [name for name in extras.split(",") if name]
        words = [sys.executable, str(tmp_path / "libraries.py"), *([extras] if extras else [])]
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()

        assert listed == project["dependencies"] + [
            line for name in names for line in project["optional-dependencies"][name]
        ]


def test_command_is_one_of_the_programs() -> None:
    """Further options may follow it, and its ports are those that the file exposes."""
    batchkiln, command, *arguments = json.loads(value_of("ENTRYPOINT"))
    found = program.get_command(click.Context(program), command)
    assert found is not None
    context = found.make_context(command, [*arguments, "--key", "test-key", "--instant"])

    config = ServiceConfig.model_validate(
        {name: context.params[name] for name in ("host", "port", "operator_host", "operator_port", "state_dir")}
    )
    assert batchkiln == "batchkiln"
    assert (config.host, config.operator_host) == ("0.0.0.0", "0.0.0.0")
    assert value_of("EXPOSE").split() == [str(config.port), str(config.operator_port)]
    assert value_of("VOLUME") == value_of("WORKDIR") == str(config.state_dir)
    assert f"127.0.0.1:{config.operator_port}/health" in value_of("HEALTHCHECK")


def test_service_does_not_run_as_root_and_stops_in_order() -> None:
    """SIGTERM is what `serve` completes its replies for."""
    assert value_of("USER") == "10001"  # by number: Kubernetes cannot tell that a named user is not root
    assert value_of("STOPSIGNAL") == "SIGTERM"


def test_program_runs_as_the_owner_of_a_folder() -> None:
    """`--user` is a user without a home in the image: what the program keeps is elsewhere, and the manual says it."""
    environment = DockerfileParser(fileobj=io.BytesIO(PROGRAM.read_bytes())).envs

    assert environment == {"XDG_STATE_HOME": "/data/state", "XDG_CACHE_HOME": "/tmp/cache"}
    assert option("--user") == ["$(id -u):$(id -g)"]


def option(name: str) -> list[str]:
    """Return the values of an option of `docker run`."""
    words = docker_run()
    return [words[place + 1] for place, word in enumerate(words) if word == name]


def test_one_container_starts_again_and_is_for_this_machine_alone() -> None:
    """It has no power that it does not need, time to end, a bounded log, and its port on the loopback address."""
    assert option("--restart") == ["unless-stopped"]
    assert option("--stop-timeout") == ["120"]
    assert option("--cap-drop") == ["ALL"]
    assert option("--security-opt") == ["no-new-privileges"]
    assert option("--log-opt") == ["max-size=10m", "max-file=3"]
    assert option("--publish") == ["127.0.0.1:8642:8642"]
    assert option("--volume") == ["$PWD/data:/data", "$PWD/secrets:/secrets:ro"]
    assert "--init" in docker_run()


def test_one_container_reads_its_secrets_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command and the configuration are the program's, and each secret is one that the guide makes."""
    text = configuration()
    (tmp_path / "inbox").mkdir()
    monkeypatch.chdir(tmp_path)
    command, *arguments = docker_run()[docker_run().index("batchkiln", 3) + 1 :]
    found = program.get_command(click.Context(program), command)
    assert found is not None
    path = tmp_path / "batchkiln.yaml"
    path.write_text(text.replace("/secrets", str(tmp_path)), "utf-8")
    for name in ("studio.key", "person.token"):
        assert f"> secrets/{name})" in GUIDE
        (tmp_path / name).write_text("0123456789abcdef" * 3, "utf-8")

    config = load_config(path, {})

    assert found.make_context(command, arguments, parent=click.Context(program)).params["has_dashboard"]
    assert config.profile(None).keys("anna") == ["0123456789abcdef" * 3]
    assert [token.name for token in config.http.digests().values()] == ["person"]
    assert (config.http.host, config.http.port) == ("0.0.0.0", 8642)


@pytest.mark.parametrize(("place", "config"), [(0, None), (1, ROOT / "docs/compose/batchkiln.yaml")])
def test_each_section_saves_a_manifest_for_its_own_accounts(place: int, config: Path | None) -> None:
    """Its commands read a manifest that it saved before, which names no account that its configuration lacks."""
    section = GUIDE.split("\n## Compose\n")[place]
    text = section if config is None else config.read_text("utf-8")

    before, manifest, after = re.split(r"<!-- file: birds\.yaml -->\n```yaml\n(.*?)```", section, flags=re.DOTALL)

    assert set(yaml.safe_load(manifest).get("accounts", [])) <= set(re.findall(r"- \{name: (\w+), keys", text))
    assert "- < birds.yaml" in after
    assert "< birds.yaml" not in before


def test_program_has_the_extras_that_were_asked_for() -> None:
    """The manual's build argument is the file's, and names extras of the program."""
    parser = DockerfileParser(fileobj=io.BytesIO(PROGRAM.read_bytes()))
    (argument,) = (each["value"] for each in parser.structure if each["instruction"] == "ARG")
    manual = GUIDE.partition("--build-arg ")[2].split()[0]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]

    assert [name for name, _, _ in (argument.partition("="), manual.partition("="))] == ["EXTRAS"] * 2
    assert {*argument.partition("=")[2].split(","), *manual.partition("=")[2].split(",")} <= set(extras)
    assert '"/src[${EXTRAS}]"' in PROGRAM.read_text("utf-8")  # in double quotes, so that the shell puts them in
