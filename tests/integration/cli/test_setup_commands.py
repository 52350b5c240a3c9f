"""`init`, `schema`, `serve`, `completion`, and what the program says to mistakes."""

import json
import re
import signal
from pathlib import Path

import click
import pytest

from batchkiln.cli.main import program
from integration.cli.workspace import Workspace, finished, interrupt, until_line


def test_init_wires_the_manifest_to_its_schema(workspace: Workspace) -> None:
    """The file that the manifest's first line names is what `schema` prints; one that is there is left alone."""
    workspace.call("init")
    named = (workspace.folder / "manifest.yaml").read_text().splitlines()[0].partition("$schema=")[2]

    assert (workspace.folder / named).read_text() == workspace.call("schema").out
    (workspace.folder / named).write_text("mine")
    assert workspace.call("init", "other.yaml").exit == 0
    assert (workspace.folder / named).read_text() == "mine"


@pytest.mark.long
def test_init_writes_a_manifest_that_runs_and_never_writes_over_one(workspace: Workspace) -> None:
    """The first manifest is accepted as it is; a second init leaves it alone. As a person starts them."""
    workspace = workspace.starting_anew()
    first = workspace.call("init")
    path = workspace.folder / "manifest.yaml"
    path.write_text(path.read_text() + "# mine\n")

    second = workspace.call("init")

    assert (first.exit, second.exit) == (0, 2)
    assert path.read_text().endswith("# mine\n")
    assert workspace.call("enqueue", "manifest.yaml").exit == 0


def test_the_command_for_a_first_manifest_can_be_copied(workspace: Workspace) -> None:
    """A path with a space or a hyphen is one argument of the shell."""
    assert workspace.call("init", "my jobs/birds.yaml").out.endswith("`batchkiln run 'my jobs/birds.yaml'`\n")
    assert workspace.call("init", "--", "-x.yaml").out.endswith("`batchkiln run -- -x.yaml`\n")


def test_schema_is_json_schema(workspace: Workspace) -> None:
    """Standard output is the schema and nothing else."""
    assert workspace.call("schema").document["$schema"].startswith("https://json-schema.org/")


def test_serve_shows_where_it_is_and_serves_until_a_signal(workspace: Workspace) -> None:
    """Base URL, the key's file and how to use them; the key itself is not printed; SIGTERM: exit 0."""
    server = workspace.start("serve", "--state-dir", "service", "--time-scale", "600")
    line = until_line(server, "export BATCHKILN_BASE_URL=")
    key = Path(workspace.folder / "service" / "key-main").read_text().strip()
    base_url = line.split("BATCHKILN_BASE_URL=")[1].split()[0]

    workspace.configure(
        f"profiles:\n  served:\n    base_url: {base_url}\n    time_scale: 600\n"
        "    accounts: [{name: main, keys: [{file: service/key-main}]}]\n"
    )
    result = workspace.call("run", workspace.manifest(items=1), "--profile", "served")

    interrupt(server, signal.SIGTERM)
    ended = finished(server)
    assert ended.exit == 0
    assert key not in line + ended.out + ended.err
    assert result.exit == 0, result.err


def test_serving_twice_from_one_folder_is_refused(workspace: Workspace) -> None:
    """The second is told why: exit 2."""
    server = workspace.start("serve", "--state-dir", "service")
    until_line(server, "export")

    second = workspace.call("serve", "--state-dir", "service")

    interrupt(server)
    assert finished(server).exit == 0
    assert second.exit == 2
    assert "another process serves" in second.err
    assert "choose another --state-dir" in " ".join(second.err.split())


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_prints_a_script(workspace: Workspace, shell: str) -> None:
    """The script calls the program back."""
    assert "_BATCHKILN_COMPLETE" in workspace.call("completion", shell).out


def test_the_queues_jobs_are_completed(done: Workspace) -> None:
    """`batchkiln status fo<TAB>` offers the job."""
    result = done.call(_BATCHKILN_COMPLETE="zsh_complete", COMP_WORDS="batchkiln status fo", COMP_CWORD="2")

    assert "foxes" in result.out


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("batchkiln run fo", "file"),
        ("batchkiln plan", "file"),
        ("batchkiln --config fo", "file"),
        ("batchkiln run --config fo", "file"),
        ("batchkiln status --queue fo", "file"),
        ("batchkiln models --manifest fo", "file"),
        ("batchkiln export foxes --to fo", "file"),
        ("batchkiln queue copy fo", "file"),
        ("batchkiln watch fo", "dir"),
        ("batchkiln report foxes --to fo", "file"),
    ],
)
def test_a_file_is_completed_by_the_shell(workspace: Workspace, words: str, kind: str) -> None:
    """`batchkiln run fo<TAB>` offers foxes.yaml: the shell is told that a file, or a folder, is wanted."""
    typed = {"COMP_WORDS": words, "COMP_CWORD": str(max(2, len(words.split()) - 1))}
    last = words.rsplit(maxsplit=1)[-1] if words.endswith("fo") else ""

    bash = workspace.call(_BATCHKILN_COMPLETE="bash_complete", **typed)
    zsh = workspace.call(_BATCHKILN_COMPLETE="zsh_complete", **typed)
    fish = workspace.call(_BATCHKILN_COMPLETE="fish_complete", **(typed | {"COMP_CWORD": last}))

    assert bash.out == f"{kind},{last}\n"
    assert zsh.out.splitlines()[:2] == [kind, last]
    assert fish.out.splitlines() == [f"{kind},{last}"] or fish.out.splitlines() == [f"{kind}", last]


def test_every_argument_that_names_a_file_is_completed() -> None:
    """A new option with a file's metavar has click's type for it."""
    named = re.compile(r"\b(FILE|DIR|QUEUE|MANIFEST|FROM|TO)\b")
    context = click.Context(program)
    commands = [program, *filter(None, (program.get_command(context, name) for name in program.list_commands(context)))]

    unknown = [
        (command.name, parameter.name)
        for command in commands
        for parameter in command.params
        if named.search(parameter.metavar or "") and not isinstance(parameter.type, click.Path)
    ]

    assert unknown == []


def test_a_mistyped_command_is_reported_with_the_one_that_is_near(workspace: Workspace) -> None:
    """Exit 2."""
    result = workspace.call("stauts")

    assert result.exit == 2
    assert "status" in result.err


def test_a_configuration_with_a_mistake_is_two(workspace: Workspace) -> None:
    """The mistake is told with its line."""
    workspace.configure("profiles:\n  local:\n    time_scael: 3\n")

    result = workspace.call("run", workspace.manifest())

    assert result.exit == 2
    assert "batchkiln.yaml:3" in result.err


@pytest.mark.parametrize("command", ["work", "status"])
def test_a_profile_that_is_not_configured_is_two(workspace: Workspace, command: str) -> None:
    """Nothing is driven on other services instead."""
    workspace.call("enqueue", workspace.manifest())

    result = workspace.call(command, "--profile", "studoi")

    assert result.exit == 2
    assert "studoi" in result.err


def test_serve_takes_a_file_that_names_no_state_folder(workspace: Workspace) -> None:
    """The option, or the default, says where it is."""
    (workspace.folder / "service.yaml").write_text("accounts: [{name: main}, {name: second}]\n")

    server = workspace.start("serve", "--config", "service.yaml", "--state-dir", "there")
    until_line(server, "export")

    interrupt(server)
    assert finished(server).exit == 0
    assert (workspace.folder / "there" / "key-second").is_file()


def test_a_mistake_in_the_services_file_is_reported_without_its_values(workspace: Workspace) -> None:
    """Exit 2, with the field; a key that stands there is not shown."""
    (workspace.folder / "service.yaml").write_text("accounts: [{name: main, kyes: [secret-key]}]\n")

    result = workspace.call("serve", "--config", "service.yaml")

    assert result.exit == 2
    assert "unknown field `accounts.0.kyes`" in result.err
    assert "secret" not in result.err


def test_an_unexpected_error_is_one_line_and_a_traceback_only_with_v(workspace: Workspace) -> None:
    """Exit 1; -v shows where it happened."""
    workspace.call("enqueue", workspace.manifest())
    queue = workspace.folder / ".batchkiln" / "queue.db"
    _store_an_impossible_day(queue)

    short, long = workspace.call("status"), workspace.call("status", "-v")

    assert (short.exit, long.exit) == (1, 1)
    assert "Traceback" not in short.err
    assert "Traceback" in long.err


def _store_an_impossible_day(queue: Path) -> None:
    """Store what no version of the program ever writes, and none expects."""
    import sqlite3  # noqa: PLC0415  for this one accident

    connection = sqlite3.connect(queue)
    connection.execute("INSERT INTO account (id, profile, name) VALUES (1, 'local', 'main')")
    connection.execute("INSERT INTO account_day (account_id, day_start_at) VALUES (1, 1 << 62)")
    connection.commit()
    connection.close()


def test_help_and_version_need_no_queue(workspace: Workspace) -> None:
    """--help and --version print and exit with 0."""
    assert workspace.call("--help").exit == 0
    assert "batchkiln" in workspace.call("--version").out
    assert json.dumps(workspace.call("run", "--help").exit) == "0"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("ls",), "there is no command `ls`; did you mean `status` or `items`?"),
        (("list",), "there is no command `list`; did you mean `status` or `items`?"),
        (("version",), "did you mean `--version`?"),
        (("retyr",), "did you mean `retry`?"),
        (("xyzzy",), "`batchkiln --help` explains its use"),
        (("run", "--max-credits", "lots", "x.yaml"), "'lots' is not a whole number"),
        (("run", "--limit", "0", "x.yaml"), "0 is too small: it must be at least 1"),
        (("plan", "--show", "2000", "x.yaml"), "2000 is not from 0 to 1000"),
        (("lsit",), "did you mean `status` or `items`?"),
        (("run", "--max-credit", "5", "x.yaml"), "did you mean `--max-credits`?"),
        (("run", "--budgte", "5", "x.yaml"), "no such option '--budgte'; did you mean `--max-credits`?"),
        (("status", "--follow"), "did you mean `--watch`?"),
        (("items", "birds", "--state", "dnoe"), "did you mean `done`?"),
        (("queue", "cpoy", "x"), "did you mean `copy`?"),
        (("workers", "drian", "x"), "did you mean `drain`?"),
        (("run", "--profil", "x", "x.yaml"), "did you mean `--profile`?"),
        (("run", "--contact-timeout", "long", "x.yaml"), "'long' is not a number"),
    ],
)
def test_a_wrong_word_is_told_in_words(workspace: Workspace, arguments: tuple[str, ...], told: str) -> None:
    """What people type by habit leads to the command; a wrong number is not called a range."""
    result = workspace.call(*arguments)

    assert result.exit == 2
    assert told in result.err
    assert result.err.startswith("batchkiln: ")
