"""`serve credits` and `serve report`: the local service's books shown, and added to, while it runs or does not."""

import json
import signal
import stat
import urllib.request
from pathlib import Path
from typing import Final

import click
import pytest

from batchkiln.cli.command import Command
from batchkiln.cli.serve import serve
from batchkiln.core.errors import ExitStatus
from integration.cli.workspace import Workspace, finished, interrupt, until_line

MANUAL: Final = Path(__file__).parents[3] / "docs" / "commands.md"
TEN: Final = "state_dir: books\naccounts: [{name: main, credits: 10}]\n"


def balance(workspace: Workspace, base_url: str) -> object:
    key = (workspace.folder / "books" / "key-main").read_text().strip()
    request = urllib.request.Request(f"{base_url}/credits/balance", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.loads(response.read())["balance"]


def served_balance(workspace: Workspace, *arguments: str) -> tuple[object, int]:
    """Serve and stop again; return the balance of `main` and the exit status."""
    server = workspace.start("serve", *arguments, "--json")
    base_url = until_line(server, "base_url").split('"')[3]
    found = balance(workspace, base_url)
    interrupt(server)
    return found, finished(server).exit


def test_a_key_made_before_the_first_start_buys_nothing(workspace: Workspace) -> None:
    """What an account begins with is what the configuration of its first server says, not what a command assumed."""
    (workspace.folder / "service.yaml").write_text(TEN)

    workspace.call("serve", "keys", "create", "main", "--state-dir", "books")
    before = workspace.call("serve", "credits", "main", "--state-dir", "books", "--json").document
    served = served_balance(workspace, "--config", "service.yaml")

    assert before["bought_credits"] == 0
    assert served == (10, 0)


def test_credits_are_bought_beside_a_running_service(workspace: Workspace) -> None:
    """The next request has them; the ledger has a purchase more."""
    (workspace.folder / "service.yaml").write_text(TEN)
    server = workspace.start("serve", "--config", "service.yaml", "--json")
    base_url = until_line(server, "base_url").split('"')[3]

    bought = workspace.call("serve", "credits", "buy", "main", "32", "--state-dir", "books")
    after = balance(workspace, base_url)

    interrupt(server)
    assert finished(server).exit == 0
    assert after == 42
    assert bought.out == "Account main has 42 credits left of 42 bought: 0 reserved, 0 charged.\n"
    shown = workspace.call("serve", "credits", "--state-dir", "books", "show", "main", "--json").document
    assert shown == {
        "account": "main",
        "bought_credits": 42,
        "available_credits": 42,
        "reserved_credits": 0,
        "charged_credits": 0,
    }


def test_configured_credits_that_do_nothing_are_reported(workspace: Workspace) -> None:
    """A later change is no purchase: the start says what holds, and which command buys. It is silent otherwise."""
    (workspace.folder / "service.yaml").write_text(TEN)
    served_balance(workspace, "--config", "service.yaml")
    (workspace.folder / "service.yaml").write_text(TEN.replace("10", "5000"))

    server = workspace.start("serve", "--config", "service.yaml", "--json", "--log-format", "json")
    until_line(server, "base_url")
    interrupt(server)
    told = finished(server).err.splitlines()[0]
    workspace.call("serve", "credits", "buy", "main", "4990", "--state-dir", "books")
    server = workspace.start("serve", "--config", "service.yaml", "--json", "--log-format", "json", "-q")
    until_line(server, "base_url")
    interrupt(server)

    assert json.loads(told)["event"] == "configured_credits_unused"
    assert json.loads(told)["reason"] == "the account bought 10 at its first start, 10 in all; that is final"
    assert json.loads(told)["remedy"] == "batchkiln serve credits buy main N"
    assert finished(server).err == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["credits", "nobody"], "there is no account nobody; there are: main"),
        (["credits", "buy", "nobody", "5"], "there is no account nobody; there are: main"),
        (["credits", "buy", "main", "0"], "0 is not from 1 to"),
        (["credits", "buy", "main", "-5"], "no such option"),
        (["credits", "buy", "main"], "missing argument 'N'"),
        (["credits", "bye", "main", "5"], "unexpected extra argument"),
        (
            ["report", "--state-dir", "nowhere"],
            "there is no service database in nowhere; --state-dir names another folder",
        ),
        (["--time-scale", "nan"], "--time-scale: must be a finite number"),
        (["--time-scale", "inf"], "--time-scale: must be a finite number"),
        (["--time-scale", "1e300"], "--time-scale: must be less than or equal to 1000000"),
        (["--time-scale", "0"], "--time-scale: must be greater than or equal to 0.001"),
    ],
)
def test_mistakes_are_two(workspace: Workspace, arguments: list[str], told: str) -> None:
    """Each mistake is reported in one sentence that names the option or the argument."""
    result = workspace.call("serve", *arguments)

    assert result.exit == 2
    assert told in result.err
    assert "None" not in result.err


def test_a_report_can_be_had_after_a_kill(workspace: Workspace) -> None:
    """What clients did is in the books, with the limits that the service had; reading them changes nothing."""
    (workspace.folder / "service.yaml").write_text(f"{TEN}limits: {{reads_per_minute: 7}}\n")
    server = workspace.start("serve", "--config", "service.yaml", "--json")
    balance(workspace, until_line(server, "base_url").split('"')[3])
    while_serving = workspace.call("serve", "report", "--state-dir", "books").document
    server.send_signal(signal.SIGKILL)
    finished(server)

    after = workspace.call("serve", "report", "--config", "service.yaml")
    unnamed = workspace.call("serve", "report", "--state-dir", "books")

    assert after.exit == 0
    assert after.document == while_serving == unnamed.document
    assert after.document["requests"] == [{"kind": "read", "status": 200, "code": None, "requests": 1}]
    assert after.document["windows"][0]["limit_per_minute"] == 7


def test_the_books_are_their_owners_alone(workspace: Workspace) -> None:
    """The file and the log beside it are private, even in a folder that others may read."""
    books = workspace.folder / "books"
    books.mkdir()
    books.chmod(0o755)
    server = workspace.start("serve", "--state-dir", "books", "--json")
    until_line(server, "base_url")

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in books.glob("service.db*")}

    interrupt(server)
    finished(server)
    assert modes == dict.fromkeys(("service.db", "service.db-wal", "service.db-shm"), 0o600)


@pytest.mark.parametrize("content", ["", "\n", "lk_short", "not a key\n", "ü"])
def test_a_key_file_that_holds_no_key_is_replaced(workspace: Workspace, content: str) -> None:
    """A power cut or an editor must not lock the account out."""
    workspace.call("serve", "keys", "list", "--state-dir", "books")
    path = workspace.folder / "books" / "key-main"
    path.write_text(content, "utf-8")

    served = served_balance(workspace, "--state-dir", "books")

    assert served == (1_000_000, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_accident_while_serving_is_no_mistake_of_a_persons(workspace: Workspace) -> None:
    """A report that cannot be written at the end is told as what it is, and not with exit 2."""
    reports = workspace.folder / "reports"
    server = workspace.start("serve", "--state-dir", "books", "--report", "reports/r.json", "--json")
    until_line(server, "base_url")
    reports.rmdir()
    reports.write_text("a file in the folder's place")

    interrupt(server)

    result = finished(server)
    assert result.exit == ExitStatus.UNEXPECTED
    assert "cannot be served" not in result.err


@pytest.mark.parametrize("name", ["credits show", "credits buy", "report"])
def test_each_command_has_help_with_an_example_and_a_place_in_the_manual(name: str) -> None:
    """As every command has."""
    credits_ = serve.commands["credits"]
    assert isinstance(credits_, click.Group)
    found = credits_.commands[name.partition(" ")[2]] if name.startswith("credits") else serve.commands[name]
    assert isinstance(found, Command)

    text = found.get_help(click.Context(found, info_name=name))

    assert found.help
    assert f"batchkiln serve {name}" in text
    assert f"batchkiln serve {name}" in MANUAL.read_text("utf-8").partition("\n## serve\n")[2].partition("\n## ")[0]
    assert [option.name for option in found.params if isinstance(option, click.Option) and not option.help] == []


def test_a_report_without_requests_is_of_the_last_start(workspace: Workspace) -> None:
    """Not of the year 1970; the last start is the latest that is known of a stopped service."""
    server = workspace.start("serve", "--state-dir", "books", "--json")
    until_line(server, "base_url")
    interrupt(server)
    finished(server)

    report = workspace.call("serve", "report", "--state-dir", "books").document

    assert report["period"]["first_request_at"] is None
    assert report["period"]["written_at"] > "2020"
