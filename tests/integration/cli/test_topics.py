"""`batchkiln help`, completion in a shell, and --no-input."""

import re

import pytest

from batchkiln.cli.help_command import pages
from batchkiln.cli.main import SUMMARIES
from integration.cli.workspace import Workspace


def completed(workspace: Workspace, line: str) -> list[str]:
    """Return what bash would offer for the last word of a line."""
    words = line.split(" ")
    result = workspace.call(_BATCHKILN_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    return [entry.partition(",")[2] for entry in result.out.splitlines() if entry]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("batchkiln show fox", ["foxes"]),
        ("batchkiln show foxes item-", ["item-1", "item-2"]),
        ("batchkiln retry foxes item-1 item-2", ["item-2"]),
        ("batchkiln resolve foxes item-1", ["item-1"]),
        ("batchkiln show owls item", []),
        ("batchkiln redo foxes ot", ["other"]),
        ("batchkiln use-version foxes ot", ["other"]),
        ("batchkiln review foxes --keep item-", ["item-1", "item-2"]),
        ("batchkiln review foxes --keep item-1 --drop item-2", ["item-2"]),
        ("batchkiln review foxes --undo ot", ["other"]),
        ("batchkiln review --keep item-", []),
        ("batchkiln work fo", ["foxes"]),
        ("batchkiln status --profile st", ["studio"]),
        ("batchkiln models epsilon-2", ["epsilon-2"]),
        ("batchkiln help exit", ["exit-codes"]),
    ],
)
def test_a_shell_completes_names(workspace: Workspace, line: str, offered: list[str]) -> None:
    """Jobs, items of the job that stands before them, profiles, models and topics."""
    workspace.configure("profiles: {studio: {}}\n")
    (workspace.folder / "foxes.yaml").write_text(
        "version: 1\njob: foxes\ndefaults: {model: epsilon-2, mode: text-to-image}\n"
        "items: [{id: item-1, prompt: A fox}, {id: item-2, prompt: Another}, {id: other, prompt: Third}]\n"
    )
    assert workspace.call("enqueue", "foxes.yaml").exit == 0

    assert completed(workspace, line) == offered


def test_topics_are_the_pages_of_the_manual(workspace: Workspace) -> None:
    """A page, a section of a page, and the help of a command; an unknown one with what was meant."""
    listed = workspace.call("help")
    page, section = workspace.call("help", "manifest"), workspace.call("help", "exit-codes")
    command, unknown = workspace.call("help", "run"), workspace.call("help", "manifst")

    assert "  manifest " in listed.out
    assert "](" not in listed.out  # no markup of a link
    assert re.search("overnight-batch +hundreds of rows", listed.out)
    assert all(re.search(f"^  {name} +.", listed.out, re.MULTILINE) for name in pages())
    assert workspace.call("help", "http").out.startswith("# HTTP interface\n")  # not the guide of this name
    assert workspace.call("help", "guides/http").out.startswith("# The queue over HTTP\n")  # by its file's name
    assert workspace.call("help", "guides/budgets").out == workspace.call("help", "budgets").out
    assert workspace.call("help", "contract").out.startswith("# ")
    assert "<!--" not in workspace.call("help", "budgets").out
    assert "Output:\n" in workspace.call("help", "first-batch").out
    assert page.out.startswith("# The manifest\n")
    assert section.out.startswith("## Exit codes\n")
    assert "\n## run\n" not in section.out
    assert command.out.startswith("Usage: batchkiln run [OPTIONS] MANIFEST...\n")
    assert (unknown.exit, "did you mean `manifest`?" in unknown.err) == (2, True)
    assert workspace.call("help", "prices").out.startswith("# Planning\n")  # not a section for developers
    assert workspace.call("help", "credits").out.startswith("# Budgets\n")


def test_a_page_with_the_name_of_a_command_follows_its_usage(workspace: Workspace) -> None:
    """Each page that is listed can be read."""
    both = [name for name in pages() if name in SUMMARIES]

    assert "serve" in both
    for name in both:
        usage, page = workspace.call("help", name).out, pages()[name].read_text("utf-8")
        assert usage.startswith(f"Usage: batchkiln {name} ")
        assert page.partition("\n")[0] in usage


def test_nothing_is_asked_with_no_input(workspace: Workspace) -> None:
    """On a terminal, the command goes on as it would without one."""
    workspace.configure("confirm_above_credits: 0\n")
    workspace.manifest("foxes")

    process, terminal = workspace.start_at_terminal("run", "foxes.yaml", "--no-input")
    shown = terminal.rest()
    process.communicate(timeout=30)

    assert process.returncode == 0
    assert "Continue?" not in shown


@pytest.mark.parametrize(
    ("topic", "hint"),
    [
        ("exit", "this word is in\n    `batchkiln help exit-codes`\n"),
        ("manifset", "did you mean `manifest`?"),
        ("runn", "did you mean `run`?"),
        ("refunded", "this word is in\n    `batchkiln help "),
        ("fuzzing", 'this word is in\n    `batchkiln help reliability`, "'),
        ("on-change", "this word is in\n    `batchkiln help "),
        ("suspend", "this word is in\n    `batchkiln help "),
        ("xyzzy", "`batchkiln help` lists the topics"),
    ],
)
def test_a_word_of_a_topic_leads_to_it(workspace: Workspace, topic: str, hint: str) -> None:
    """Nobody knows the names of topics by heart; a name that only looks alike is no help."""
    result = workspace.call("help", topic)

    assert result.exit == 2
    assert f"there is no topic {topic}; {hint}" in result.err


@pytest.mark.parametrize(
    ("topic", "meant"), [("budget", "budgets"), ("variants", "variants-and-reviews"), ("hook", "hooks")]
)
def test_a_topic_of_nearly_this_name_is_shown(workspace: Workspace, topic: str, meant: str) -> None:
    """The other of singular and plural, or the only topic with the word."""
    result, whole = workspace.call("help", topic), workspace.call("help", meant)

    assert (result.exit, result.out) == (0, whole.out)
    assert result.err == f"There is no topic {topic}; this is {meant}.\n"


def test_each_page_with_a_word_is_named_by_a_command_that_shows_it(workspace: Workspace) -> None:
    """With the heading above the word, which is what to look for in a long page."""
    told = workspace.call("help", "credits_per_day").err

    found = re.findall(r"^    `batchkiln help (\S+)`, \"(.+)\"$", told, re.MULTILINE)
    assert len(found) == 8
    for name, title in found:
        assert title in workspace.call("help", name).out.replace("`", "")


def test_a_section_is_found_without_its_article(workspace: Workspace) -> None:
    """The section "A backup" is the topic `backup`, and still `a-backup`."""
    plain, whole = workspace.call("help", "backup"), workspace.call("help", "a-backup")

    assert plain.out.partition("\n")[0].endswith("A backup")
    assert whole.out == plain.out
