"""The units of docs/systemd: their commands are the program's, they end in order, and systemd accepts them."""

import os
import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Final

import click
import pytest

from batchkiln.cli.main import program
from batchkiln.config import AccessScope, load_config
from batchkiln.core.errors import ExitStatus, QueueBusy, SharedFolderAway

UNITS: Final = sorted((Path(__file__).resolve().parents[2] / "docs" / "systemd").glob("*.service"))
GUIDE: Final = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "systemd.md").read_text("utf-8")
INSTALLED: Final = "/opt/batchkiln/bin/batchkiln"


def settings(unit: Path) -> dict[str, list[str]]:
    """Return the values of each setting, which a unit may have several times."""
    return settings_of(unit.read_text("utf-8"))


def settings_of(text: str) -> dict[str, list[str]]:
    """Return the values of each setting in a unit's text."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name].append(value)
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_command_is_one_of_the_programs(unit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options and names are those that the program takes, in a folder with the inbox."""
    (tmp_path / "inbox").mkdir()
    monkeypatch.chdir(tmp_path)
    (line,) = settings(unit)["ExecStart"]
    place, name, *arguments = shlex.split(line)
    command = program.get_command(click.Context(program), name)

    assert place == INSTALLED
    assert command is not None
    command.make_context(name, arguments, parent=click.Context(program))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_end_is_orderly_and_a_mistake_is_left_to_a_person(unit: Path) -> None:
    """SIGTERM is no failure, and exit codes that only a person can mend do not start it again."""
    found = settings(unit)
    *ours, missing_credential = found["RestartPreventExitStatus"][0].split()
    persons = {ExitStatus(int(each)) for each in ours}

    assert missing_credential == "243"  # systemd's own status of a unit that it cannot give a file of LoadCredential=
    assert found["SuccessExitStatus"] == [str(int(ExitStatus.TERMINATED))]
    assert found["Restart"] == ["always"]
    assert {ExitStatus.USAGE, ExitStatus.ACCOUNT_CANNOT_WORK} <= persons
    assert persons.isdisjoint({ExitStatus.UNEXPECTED, ExitStatus.ITEMS_NOT_DONE, ExitStatus.STOPPED_WITH_WORK_LEFT})
    assert found["User"] == ["batchkiln"]


def test_worker_keeps_its_journals_on_the_machine() -> None:
    """They name what was paid, and no restore of the database replaces them."""
    (unit,) = (each for each in UNITS if each.stem == "batchkiln-worker")
    found = settings(unit)

    assert found["StateDirectory"] == ["batchkiln"]
    assert "XDG_STATE_HOME=%S" in found["Environment"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_unit_starts_without_a_shared_folder(unit: Path) -> None:
    """Only the folder it works in has to exist: systemd ends a unit whose ReadWritePaths= is missing without `-`."""
    found = settings(unit)
    (paths,) = found["ReadWritePaths"]

    assert [path for path in paths.split() if not path.startswith("-")] == found["WorkingDirectory"]


def test_worker_is_started_again_until_its_folder_is_mounted() -> None:
    """A start repeats what it wants, and is itself never repeated after what it requires has failed."""
    (unit,) = (each for each in UNITS if each.stem == "batchkiln-worker")
    found = settings(unit)

    assert "-/mnt/kiln" in found["ReadWritePaths"][0].split()
    assert "mnt-kiln.mount" in found["Wants"]
    assert "mnt-kiln.mount" in found["After"]
    assert found.keys().isdisjoint({"Requires", "RequiresMountsFor", "BindsTo"})
    assert str(int(SharedFolderAway("away").exit_status)) not in found["RestartPreventExitStatus"][0].split()
    assert str(int(QueueBusy("away").exit_status)) not in found["RestartPreventExitStatus"][0].split()


def test_password_of_the_database_is_read_whatever_its_mode() -> None:
    """A credential may look readable for a group, and libpq then ignores a password file, but not a service file."""
    (unit,) = (each for each in UNITS if each.stem == "batchkiln-worker")
    found = settings(unit)

    assert "PGSERVICEFILE=%d/pg_service.conf" in found["Environment"]
    assert "pg_service.conf:/etc/batchkiln/pg_service.conf" in found["LoadCredential"]
    assert [each for each in found["Environment"] if "PGPASS" in each] == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_files_of_the_unit_are_those_of_the_guide(unit: Path) -> None:
    """The guide makes each file that a unit reads, for root alone, and starts the unit by its name."""
    sources = [each.partition(":")[2] for each in settings(unit)["LoadCredential"]]

    assert sources
    assert [source for source in sources if f"install -m 600 /dev/stdin {source}" not in GUIDE] == []
    assert f"systemctl enable --now {unit.stem}\n" in GUIDE


def written(name: str) -> list[str]:
    """Return what the guide writes into files whose paths end in `name`, in order."""
    found = re.findall(r"^(?:install [^\n]*|cat >> )(?<= )(\S+) <<'END'\n(.*?)^END$", GUIDE, re.DOTALL | re.MULTILINE)
    return [text for path, text in found if path.endswith(name)]


def test_places_of_the_configuration_are_credentials_of_the_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key, token and address of the watched folder are read from where systemd puts what unit and drop-ins load."""
    begin, tokens, notify, tokens_again = written("/batchkiln.yaml")
    drop_ins = [settings_of(text) for text in (*written(".service.d/00-queue.conf"), *written("phone.conf"))]
    loaded = [each for found in (*map(settings, UNITS), *drop_ins) for each in found["LoadCredential"] if each]
    config = tmp_path / "batchkiln.yaml"
    config.write_text(begin + tokens + notify, "utf-8")
    for name in {each.partition(":")[0] for each in loaded}:
        (tmp_path / name).write_text(f"https://{name:x<40}\n", "utf-8")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))

    read = load_config(config, {})

    assert tokens == tokens_again
    assert read.profile(None).keys("anna") == [f"https://{'studio':x<40}"]
    assert [notifier.url() for notifier in read.notifiers.values()] == [f"https://{'phone':x<40}"]
    (token,) = read.http.digests().values()
    assert (token.name, AccessScope.DECIDE in token.scopes) == ("person", True)


def test_dashboard_of_a_watched_folder_needs_nothing_of_the_database() -> None:
    """Its first drop-in loads the tokens alone, and names the queue and the unit of the folder."""
    (unit,) = (each for each in UNITS if each.stem == "batchkiln-dashboard")
    (watched,) = (each for each in UNITS if each.stem == "batchkiln-watch")
    (change,) = written(".service.d/00-queue.conf")
    lines = change.splitlines()
    credentials = [line for line in lines if line.startswith("LoadCredential=")]

    assert lines[1] == f"JoinsNamespaceOf={watched.name}"
    assert f"Environment={settings(watched)['Environment'][0]}" in lines
    assert credentials[0] == "LoadCredential="  # so it has to be read before the drop-ins of other pages
    assert {f"LoadCredential={each}" for each in settings(unit)["LoadCredential"]} - set(credentials) == {
        "LoadCredential=pg_service.conf:/etc/batchkiln/pg_service.conf"
    }


def test_command_for_root_runs_as_the_watching_unit() -> None:
    """It has the unit's user, folder, queue, key, mask and temporary folder, so it reaches the process at once."""
    (watched,) = (each for each in UNITS if each.stem == "batchkiln-watch")
    (script,) = written("/usr/local/sbin/batchkiln")
    words = shlex.split(script.partition("\n")[2].replace("\\\n", " "))
    found = settings(watched)
    values = {words[place]: words[place + 1] for place in range(len(words) - 1)}
    properties = [words[place + 1] for place, word in enumerate(words) if word == "--property"]

    assert words[-2:] == [INSTALLED, "$@"]
    assert [values["--uid"]] == found["User"]
    assert [values["--working-directory"]] == found["WorkingDirectory"]
    assert [values["--setenv"]] == found["Environment"]
    names = ("UMask", "LoadCredential", "PrivateTmp")
    assert properties == [
        *(f"{name}={value}" for name in names for value in found[name]),
        f"JoinsNamespaceOf={watched.name}",
    ]


def test_commands_of_the_guide_run_as_root() -> None:
    """The command for root is of a queue in a file, and the password of a database is in the service file alone."""
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    using = [block for block in blocks if "service=kiln" in block]
    file, machines = GUIDE.split("\n## Several machines\n")

    assert len(using) == 4
    assert [block for block in using if "export PGSERVICEFILE=/etc/batchkiln/pg_service.conf\n" not in block] == []
    assert "\nbatchkiln doctor\n" in file
    assert re.findall(r"^batchkiln |postgresql://\w", machines, re.MULTILINE) == []


@pytest.mark.parametrize("installed", [["watch"], ["watch", "dashboard"]], ids=" and ".join)
@pytest.mark.parametrize("title", ["Update the machine", "A copy each night"])
def test_update_and_restore_are_of_the_units_that_were_installed(
    title: str, installed: list[str], tmp_path: Path
) -> None:
    """The dashboard and the copy of each night are optional; their units are neither started nor installed anew."""
    (block,) = (
        each
        for each in re.findall(r"```sh\n(.*?)```", GUIDE.split(f"### {title}")[1], re.DOTALL)[:2]
        if "systemctl stop" in each
    )
    units = {f"batchkiln-{name}.service" for name in installed}
    for folder in ("etc/systemd/system", "srv/batchkiln/queue", "opt/batchkiln/bin", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    for unit in units:
        (tmp_path / "etc/systemd/system" / unit).write_text("")
    for name in ("bin/systemctl", "bin/git", "bin/runuser", "bin/install", "bin/rm", "opt/batchkiln/bin/pip"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{program.name} $*" >> {tmp_path}/said\n')
        program.chmod(0o755)
    commands = re.sub(r"(?<= )/(?=etc|srv|opt)|^/(?=opt)", f"{tmp_path}/", block, flags=re.MULTILINE)

    subprocess.run(
        ["bash", "-euc", commands],
        check=True,
        cwd=UNITS[0].parents[2],
        env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
    )

    said = (tmp_path / "said").read_text()
    named = [set(re.findall(r"batchkiln-\w+(?:\.service)?", line)) for line in said.splitlines()]
    assert [found for found in named if found not in (set(), units)] == []
    assert "systemctl stop" in said
    assert "systemctl start" in said


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_unit_forbids_what_the_program_does_not_need(unit: Path) -> None:
    """Those that matter most are there; a call that is forbidden fails, and does not end the process."""
    found = settings(unit)

    expected = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes"}
    expected |= {"PrivateDevices": "yes", "CapabilityBoundingSet": "", "SystemCallErrorNumber": "EPERM"}
    assert {name: found[name] for name in expected} == {name: [value] for name, value in expected.items()}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_little_exposed(unit: Path) -> None:
    """At most 2.0 of 10."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")

    command = [analyze, "security", "--offline=yes", "--threshold=20", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout[-300:]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    """`systemd-analyze verify` finds nothing; the program itself is not installed here."""
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd is not installed")
    verified(unit.name, unit.read_text("utf-8"), verify, tmp_path)


def test_systemd_accepts_the_units_of_the_guide(tmp_path: Path) -> None:
    """The copy of each night is a unit and its timer."""
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd is not installed")

    for name in ("batchkiln-backup.service", "batchkiln-backup.timer"):
        (text,) = written(name)
        verified(name, text, verify, tmp_path)


def verified(name: str, text: str, verify: str, folder: Path) -> None:
    """Have systemd check a unit. Its programs are not installed here."""
    copy = folder / name
    copy.write_text(re.sub(r"^ExecStart=/\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE), "utf-8")

    done = subprocess.run([verify, "verify", copy], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
