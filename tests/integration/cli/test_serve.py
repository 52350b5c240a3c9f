"""`serve keys`: keys made, listed and revoked beside a running service, and without one."""

import json
import os
import re
import stat
import urllib.error
import urllib.request
from pathlib import Path

import click
import pytest

from batchkiln.cli.command import Command
from batchkiln.cli.serve import serve
from integration.cli.workspace import Workspace, finished, interrupt, until_line

KEYS = dict(getattr(serve.commands["keys"], "commands", {}))
CONFIGURED = "state_dir: books\naccounts: [{name: studio, keys: [configured-key]}]\n"


def create(base_url: str, idempotency_key: str) -> dict[str, str]:
    """Create an image with the key `test-key`, and return its record."""
    body = {"model": "epsilon-2", "mode": "text-to-image", "prompt": "A fox", "parameters": {"resolution": "512x512"}}
    headers = {
        "Authorization": "Bearer test-key",
        "Content-Type": "application/json",
        "Idempotency-Key": idempotency_key,
    }
    request = urllib.request.Request(f"{base_url}/images", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        record: dict[str, str] = json.load(response)
        return record


def status_of(base_url: str, key: str) -> int:
    """Read the balance with a key; return the status."""
    request = urllib.request.Request(f"{base_url}/credits/balance", headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_doctor_checks_the_key_of_a_service_whose_speed_is_not_configured(workspace: Workspace) -> None:
    """Its replies disagree on the time; that must not end the checks before the account is looked at."""
    server = workspace.start("serve", "--key", "test-key", "--time-scale", "100000", "--port", "0")
    exported = until_line(server, "export BATCHKILN_BASE_URL=").split()
    url = exported[1].partition("=")[2]

    found = workspace.call("doctor", BATCHKILN_BASE_URL=url, BATCHKILN_API_KEY="wrong-key")
    interrupt(server)
    finished(server)

    assert found.exit == 4
    assert "BATCHKILN_TIME_SCALE" in found.out
    assert "account main" in found.out


def test_a_given_key_works_and_the_exports_carry_it_with_the_speed(workspace: Workspace) -> None:
    """What `serve` prints is what another terminal needs, so a client's waits fit the service's clock."""
    server = workspace.start("serve", "--key", "test-key", "--time-scale", "60", "--port", "0")
    exported = until_line(server, "export BATCHKILN_BASE_URL=").split()

    variables = dict(word.split("=", 1) for word in exported[1:])
    status = status_of(variables["BATCHKILN_BASE_URL"], "test-key")
    interrupt(server)

    assert finished(server).exit == 0
    assert status == 200
    assert variables["BATCHKILN_API_KEY"] == "test-key"
    assert variables["BATCHKILN_TIME_SCALE"] == "60"
    assert not (workspace.folder / ".batchkiln" / "service" / "key-main").exists()


def test_a_port_in_use_is_told_with_the_remedy(workspace: Workspace) -> None:
    """Exit 2, and which options to change."""
    server = workspace.start("serve", "--json", "--state-dir", "first")
    port = until_line(server, "base_url").split('"')[3].split(":")[2].partition("/")[0]

    refused = workspace.call("serve", "--state-dir", "second", "--port", port)

    interrupt(server)
    finished(server)
    assert refused.exit == 2
    assert "choose another --port or --operator-port" in refused.err


def test_a_service_for_tests_of_clients(workspace: Workspace) -> None:
    """A known key, ids that repeat, no limits and no waits, without a configuration file."""
    ids = []
    for folder in ("first", "second"):
        server = workspace.start(
            "serve", "--json", "--state-dir", folder, *("--key", "test-key", "--seed", "7", "--no-limits", "--instant")
        )
        base_url = until_line(server, "base_url").split('"')[3]
        ids.append([created["id"] for created in (create(base_url, f"{folder}-{number:016}") for number in range(12))])
        interrupt(server)
        assert finished(server).exit == 0

    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 12


def test_a_key_that_no_header_can_carry_is_refused(workspace: Workspace) -> None:
    """Exit 2; the key itself is not repeated."""
    refused = workspace.call("serve", "--key", "two words")

    assert refused.exit == 2
    assert "--key: expected" in refused.err
    assert "two words" not in refused.err


def test_check_of_the_report_is_a_verdict(workspace: Workspace) -> None:
    """Exit 0 while the client keeps the rules, then 1 with the rule that it broke."""
    server = workspace.start("serve", "--json", "--state-dir", "books", "--key", "test-key")
    base_url = until_line(server, "base_url").split('"')[3]
    create(base_url, "idempotency-key-1")
    kept = workspace.call("serve", "report", "--check", "--state-dir", "books")
    with pytest.raises(urllib.error.HTTPError):
        create(base_url, "idempotency-key-2")
    broken = workspace.call("serve", "report", "--check", "--state-dir", "books")
    interrupt(server)
    finished(server)

    assert (kept.exit, kept.document["ok"], kept.err) == (0, True, "")
    assert (broken.exit, broken.document["ok"]) == (1, False)
    assert "generation_active: creates beside an active generation (1)" in broken.err


def test_a_key_works_at_once_and_fails_at_once_when_revoked(workspace: Workspace) -> None:
    """A running server needs no restart. Service rules 5.2 and 5.6."""
    server = workspace.start("serve", "--state-dir", "books", "--json")
    base_url = until_line(server, "base_url").split('"')[3]

    made = workspace.call("serve", "keys", "create", "main", "--state-dir", "books", "--json").document
    before = status_of(base_url, made["key"])
    revoked = workspace.call("serve", "keys", "revoke", made["id"], "--state-dir", "books")
    after = status_of(base_url, made["key"])

    interrupt(server)
    assert finished(server).exit == 0
    assert (before, after) == (200, 401)
    assert revoked.exit == 0
    assert made["id"] in revoked.out


def test_a_running_service_keeps_its_configuration(workspace: Workspace) -> None:
    """A command that was not told of the service's configuration revokes none of its keys and opens no account."""
    (workspace.folder / "service.yaml").write_text(CONFIGURED)
    server = workspace.start("serve", "--config", "service.yaml", "--json")
    base_url = until_line(server, "base_url").split('"')[3]

    refused = workspace.call("serve", "keys", "create", "main", "--state-dir", "books")
    made = workspace.call("serve", "keys", "create", "studio", "--state-dir", "books")

    assert status_of(base_url, "configured-key") == 200
    assert status_of(base_url, made.out.strip()) == 200
    interrupt(server)
    assert finished(server).exit == 0
    assert refused.exit == 2
    assert "there is no account main; there are: studio" in refused.err


def test_a_key_is_shown_once_alone_on_standard_output(workspace: Workspace) -> None:
    """Standard error says that it is not shown again, and nothing ever does. Service rule 5.2."""
    made = workspace.call("serve", "keys", "create", "main", "--state-dir", "books")
    listed = workspace.call("serve", "keys", "list", "--state-dir", "books")
    key = made.out.strip()

    assert made.out.count("\n") == 1
    assert "not shown again" in made.err
    assert key not in made.err + listed.out + listed.err
    stored = [path for path in (workspace.folder / "books").rglob("*") if path.is_file()]
    assert not [path for path in stored if key.encode() in path.read_bytes()]


def test_keys_can_be_made_before_the_first_start(workspace: Workspace) -> None:
    """The books are opened with the accounts of the configuration; the service goes on with them."""
    (workspace.folder / "service.yaml").write_text(CONFIGURED)
    made = workspace.call("serve", "keys", "create", "studio", "--config", "service.yaml")
    listed = workspace.call("serve", "keys", "list", "studio", "--config", "service.yaml", "--json")

    server = workspace.start("serve", "--config", "service.yaml", "--json")
    base_url = until_line(server, "base_url").split('"')[3]
    statuses = [status_of(base_url, key) for key in (made.out.strip(), "configured-key")]

    interrupt(server)
    assert finished(server).exit == 0
    assert statuses == [200, 200]
    assert sorted(line["origin"] for line in listed.lines) == ["command", "configuration"]


def test_the_made_key_of_an_account_is_there_before_the_first_start(workspace: Workspace) -> None:
    """Its file is for its owner alone."""
    workspace.call("serve", "keys", "list", "--state-dir", "books")

    path = workspace.folder / "books" / "key-main"

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_made_key_that_was_revoked_is_replaced_at_the_next_start(workspace: Workspace) -> None:
    """The account's file never holds a key that is of no use."""
    (only,) = workspace.call("serve", "keys", "list", "--state-dir", "books", "--json").lines
    path = workspace.folder / "books" / "key-main"
    exposed = path.read_text().strip()
    workspace.call("serve", "keys", "revoke", only["id"], "--state-dir", "books")

    server = workspace.start("serve", "--state-dir", "books", "--json")
    base_url = until_line(server, "base_url").split('"')[3]
    statuses = [status_of(base_url, key) for key in (exposed, path.read_text().strip())]

    interrupt(server)
    assert finished(server).exit == 0
    assert statuses == [401, 200]


def test_the_folder_may_precede_the_subcommand(workspace: Workspace) -> None:
    """As the common options may."""
    workspace.call("serve", "--state-dir", "books", "keys", "create", "main")

    listed = workspace.call("serve", "keys", "--state-dir", "books", "list", "--json")

    assert len(listed.lines) == 2
    assert not (workspace.folder / ".batchkiln").exists()


def test_instants_are_service_time(workspace: Workspace) -> None:
    """A key is made at the service's hour, which goes on while no server runs."""
    (workspace.folder / "service.yaml").write_text(
        "state_dir: books\nstart_at: 2040-01-01T00:00:00Z\ntime_scale: 1000\naccounts: [{name: main}]\n"
    )
    workspace.call("serve", "keys", "create", "main", "--config", "service.yaml")
    workspace.call("serve", "keys", "create", "main", "--config", "service.yaml")

    listed = workspace.call("serve", "keys", "list", "--config", "service.yaml", "--json")

    instants = [line["created_at"] for line in listed.lines]
    assert instants[0].startswith("2040-01-01T00:")
    assert len(set(instants)) > 1


def test_the_eleventh_key_is_refused(workspace: Workspace) -> None:
    """Exit 2, and when the next one may be made. Service rule 5.3."""
    configured = [f"key-number-{number}" for number in range(10)]
    (workspace.folder / "service.yaml").write_text(
        f"state_dir: books\naccounts: [{{name: main, keys: {configured}}}]\n"
    )

    refused = workspace.call("serve", "keys", "create", "main", "--config", "service.yaml")

    assert (refused.exit, refused.out) == (2, "")
    assert "account main has 10 active keys; the next one may be made once one of them is revoked" in refused.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["keys", "create", "nobody"], "there is no account nobody; there are: main"),
        (["keys", "list", "nobody"], "there is no account nobody; there are: main"),
        (["keys", "revoke", "key_0"], "there is no key key_0"),
        (["keys", "kreate", "main"], "no such command 'kreate'"),
        (["keys", "create"], "missing argument 'ACCOUNT'"),
        (["kyes"], "no such command 'kyes'"),
    ],
)
def test_mistakes_are_two(workspace: Workspace, arguments: list[str], told: str) -> None:
    """Each mistake is reported in one sentence."""
    result = workspace.call("serve", *arguments)

    assert result.exit == 2
    assert told in result.err


def test_a_key_from_the_environment_that_is_missing_is_named(workspace: Workspace) -> None:
    """Exit 2; nothing was opened."""
    (workspace.folder / "service.yaml").write_text(
        "state_dir: books\naccounts: [{name: main, keys: [{env: NO_KEY}]}]\n"
    )

    result = workspace.call("serve", "keys", "list", "--config", "service.yaml")

    assert result.exit == 2
    assert "NO_KEY" in result.err


def test_an_unreadable_service_database_is_reported(workspace: Workspace) -> None:
    """Exit 2, with the folder; the file is left as it was."""
    books = workspace.folder / "books"
    books.mkdir()
    (books / "service.db").write_text("this is no database, however long it may look to be " * 100)

    result = workspace.call("serve", "keys", "list", "--state-dir", "books")

    assert result.exit == 2
    assert "the database in books cannot be used" in result.err


def test_a_list_is_made_for_people(workspace: Workspace) -> None:
    """Each key with its account, its origin and its state."""
    made = workspace.call("serve", "keys", "create", "main", "--json").document
    workspace.call("serve", "keys", "revoke", made["id"])

    lines = workspace.call("serve", "keys", "list").out.splitlines()

    assert any("of the configuration, active" in line for line in lines)
    assert any(line.startswith(made["id"]) and "made by command, revoked at" in line for line in lines)


def test_revoking_prints_the_key_for_programs(workspace: Workspace) -> None:
    """One document, without the key itself."""
    made = workspace.call("serve", "keys", "create", "main", "--json").document

    revoked = workspace.call("serve", "keys", "revoke", made["id"], "--json")

    assert revoked.document["state"] == "revoked"
    assert revoked.document["revoked_by"] == "person"
    assert made["key"] not in json.dumps(revoked.document)


@pytest.mark.parametrize("name", list(KEYS))
def test_each_command_for_keys_has_help_with_an_example(name: str) -> None:
    """As every command has."""
    found = KEYS[name]
    assert isinstance(found, Command)

    text = found.get_help(click.Context(found, info_name=name))

    assert found.help
    assert f"batchkiln serve keys {name}" in text
    assert [option.name for option in found.params if isinstance(option, click.Option) and not option.help] == []


def test_the_manual_explains_every_command_for_keys() -> None:
    """docs/commands.md shows a use of each in the section of `serve`."""
    manual = Path(__file__).parents[3] / "docs" / "commands.md"
    section = manual.read_text("utf-8").partition("\n## serve\n")[2].partition("\n## ")[0]

    assert [name for name in KEYS if f"batchkiln serve keys {name}" not in section] == []
    assert set(serve.commands) == {"keys", "credits", "report"}


def test_two_processes_may_open_new_books_at_once(workspace: Workspace) -> None:
    """One of them lays down the schema and the accounts, and the other waits for it."""
    calls = [workspace.start("serve", "keys", "create", "main", "--state-dir", "books") for _ in range(3)]

    results = [finished(call) for call in calls]

    assert [result.exit for result in results] == [0, 0, 0], os.linesep.join(result.err for result in results)
    listed = workspace.call("serve", "keys", "list", "--state-dir", "books", "--json")
    assert [line["origin"] for line in listed.lines].count("command") == 3


def test_a_report_that_cannot_be_written_is_reported_before_anything_is_served(workspace: Workspace) -> None:
    """Exit 2 at once: a night's report is not lost at its end."""
    (workspace.folder / "file").write_text("")

    result = workspace.call("serve", "--report", "file/report.json")

    assert result.exit == 2
    assert "the report cannot be written to file/report.json" in result.err
    assert not (workspace.folder / ".batchkiln").exists()


def test_mistakes_in_the_configuration_name_their_fields(workspace: Workspace) -> None:
    """Each once, in words, with its place, and without the value."""
    (workspace.folder / "service.yaml").write_text("accounts: [{name: main, keys: [{legacy: true}, 50], credit: 3}]\n")

    result = workspace.call("serve", "--config", "service.yaml")

    assert result.exit == 2
    assert [line.partition("service.yaml:")[2] for line in result.err.splitlines()] == [
        "1:32: accounts.0.keys.0: give either value or env",
        "1:48: accounts.0.keys.1: should be a mapping of fields",
        "1:53: unknown field `accounts.0.credit`; did you mean `credits`?",
    ]


def test_mistakes_in_the_configuration_show_their_lines(workspace: Workspace) -> None:
    """As those of a manifest do, with a mark below the place."""
    (workspace.folder / "service.yaml").write_text(
        "accounts:\n  - name: main\n    keys: [a-key]\n    credits: -1\ntime_scal: 60\nlimits: {creates: 3}\n"
    )

    result = workspace.call("serve", "--config", "service.yaml")

    shown = [line for line in result.err.splitlines() if line.startswith("    ")]
    assert shown == [
        "    limits: {creates: 3}",
        "             ^",
        "        credits: -1",
        "                 ^",
        "    time_scal: 60",
        "    ^",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "acounts: [{name: main, kees: [secret-1]}]",
        "password: secret-1",
        "{time_scal: 60, accounts: [{name: main, keys: [secret-1]}]}",
        "accounts:\n  - name: main\n    keys:\n      - {value: secret-1, legacy: 3}",
        "time_scal: 60  # formerly secret-1",
        "accounts: [{name: secret-1 x}]",
        "public_url: http://me:secret-1@x",
    ],
)
def test_a_line_that_may_hold_a_key_is_not_shown(workspace: Workspace, text: str) -> None:
    """Law 8: whatever is misspelled, no text of the accounts or of an unknown field is repeated."""
    (workspace.folder / "service.yaml").write_text(f"{text}\n")

    result = workspace.call("serve", "--config", "service.yaml")

    assert result.exit == 2
    assert "service.yaml:" in result.err
    assert "secret-1" not in result.err


@pytest.mark.parametrize("arguments", [("serve",), ("serve", "keys", "list")])
def test_a_state_folder_that_cannot_be_used_is_told_with_a_remedy(
    workspace: Workspace, arguments: tuple[str, ...]
) -> None:
    """The folder, the reason and what was not done, without the number of an error."""
    (workspace.folder / "file").touch()

    result = workspace.call(*arguments, "--state-dir", "file/books")

    assert result.exit == 2
    assert "the state folder file/books cannot be used: Not a directory (" in result.err
    assert "nothing was" in result.err
    assert "Errno" not in result.err


def test_a_service_names_its_pages(workspace: Workspace) -> None:
    """What a browser shows is not behind the address for clients."""
    server = workspace.start("serve", "--port", "0")
    pages = until_line(server, "Pages for a browser: ")
    interrupt(server)

    assert finished(server).exit == 0
    assert re.search(r"(http://127\.0\.0\.1:\d+)/ for what it has, \1/docs to try its API", pages)


def test_a_field_that_is_given_twice_is_told_with_its_place_and_without_its_value(workspace: Workspace) -> None:
    """The last one would win silently. The line is not shown, because it may hold a key."""
    (workspace.folder / "service.yaml").write_text("port: 1\naccounts: [{name: a, name: secret}]\n")

    result = workspace.call("serve", "--config", "service.yaml")

    assert result.exit == 2
    assert "service.yaml:2:22: the key `name` appears here a second time" in result.err
    assert "secret" not in result.err


def test_the_state_folder_is_its_owners_alone(workspace: Workspace) -> None:
    """Prompts lie in it, and the secret that links are signed with."""
    workspace.call("serve", "keys", "list", "--state-dir", "books")

    assert stat.S_IMODE((workspace.folder / "books").stat().st_mode) == 0o700


def test_a_report_is_written_at_the_end(workspace: Workspace) -> None:
    """What clients did is in the file once the server has stopped, and at the operator's port before."""
    server = workspace.start("serve", "--state-dir", "books", "--operator-port", "0", "--report", "r.json", "--json")
    until_line(server, "base_url")
    operator_url = until_line(server, "operator_url").split('"')[3]

    interrupt(server)

    assert finished(server).exit == 0
    assert operator_url.startswith("http://127.0.0.1:")
    assert isinstance(json.loads((workspace.folder / "r.json").read_text()), dict)


def test_a_dialect_is_reported_without_serving(workspace: Workspace) -> None:
    """`serve --dialect SEED --describe-dialect` prints the traits that were drawn, and starts nothing."""
    told = workspace.call("serve", "--dialect", "7", "--describe-dialect", "--state-dir", "books")
    none = workspace.call("serve", "--describe-dialect")

    document = json.loads(told.out)
    assert (told.exit, document["seed"]) == (0, 7)
    assert document["traits"]["envelope"]
    assert not (workspace.folder / "books").exists()
    assert none.exit == 2
    assert "no dialect is configured: name its seed, as --dialect 7; nothing was started" in none.err


def test_a_trait_that_there_is_not_keeps_the_service_from_starting(workspace: Workspace) -> None:
    """A person's mistake in the configuration, told with what there is."""
    (workspace.folder / "service.yaml").write_text("dialect: 7\ndialect_without: [colour]\n")
    refused = workspace.call("serve", "--config", "service.yaml")

    assert refused.exit == 2
    assert "there is no trait colour; there are: envelope, " in refused.err
