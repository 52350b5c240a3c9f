"""Remedies for a Python program name its calls."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import batchkiln
from batchkiln.presentation.python_words import in_python_words


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("it is paused: `batchkiln unpause birds` resumes it", "it is paused: `queue.unpause('birds')` resumes it"),
        ("see `batchkiln show birds fox-1`", "see `queue.show('birds', 'fox-1')`"),
        ("`batchkiln redo birds fox-1` makes it", "`queue.redo('birds', ['fox-1'])` makes it"),
        ("pass --on-change keep or --allow-duplicates", 'pass `on_change="keep"` or `allow_duplicates=True`'),
        ("`run` refuses the manifest (exit 2)", "`enqueue` refuses the manifest"),
        ("`batchkiln review birds`", "`queue.review_step('birds')`"),
        ("`batchkiln review birds --drop owl-1`", "`queue.drop('birds', ['owl-1'])`"),
        ("`batchkiln retry birds --state failed`", "`batchkiln retry birds --state failed`"),
        ("run `batchkiln status` for a list of jobs", "run `queue.overview()` for a list of jobs"),
        ("`batchkiln status birds`", "`queue.status('birds')`"),
        ("`batchkiln work -- -birds`", "`queue.run('-birds')`"),
        ("`batchkiln work --forever birds`", "`queue.start('birds', forever=True)`"),
        ("`batchkiln items --state queued birds`", "`queue.items('birds', state='queued')`"),
        ("`batchkiln use-version birds owl 2`", "`queue.use_version('birds', 'owl', 2)`"),
        ("`batchkiln redo --stale birds`", "`queue.redo('birds', queue.stale_items('birds'))`"),
        ("`batchkiln resolve --as saved b owl`", "`queue.resolve(queue.show('b', 'owl'), 'saved')`"),
        (
            "`batchkiln resolve --as generation --generation-id gen_1 b owl`",
            "`queue.resolve(queue.show('b', 'owl'), 'generation', generation_id='gen_1')`",
        ),
        ("`batchkiln run 'my birds.yaml'`", "`queue.enqueue('my birds.yaml')` and `queue.run()`"),
        ("`batchkiln run '<mapping>'`", "`queue.enqueue(…)` and `queue.run()`"),
        ("`batchkiln ask-again`", "`queue.ask_again()`"),
        ("choose another file with --queue", "choose another file with `open_queue`"),
        ("nothing was sent. Use --queue /a/b.db", 'nothing was sent. Use `open_queue("/a/b.db")`'),
        ("use --profile studio, or rename the job", 'use `profile="studio"`, or rename the job'),
        ("`--contact-timeout 0` waits", "`contact_timeout=0` waits"),
        ("--to /a/b: it was exported with format csv", "/a/b: it was exported with format csv"),
        ("name a file with --to. Nothing was written", "name a file with `to`. Nothing was written"),
        ("--format parquet needs packages", '`format="parquet"` needs packages'),
        ("--link hard: links", '`link="hard"`: links'),
        ("--only, --limit and --sample select", "`only`, `limit` and `sample` select"),
        ("Set it and run the same command again", "Set it and repeat the call"),
        ("the prompt `a--queue b` stays", "the prompt `a--queue b` stays"),
        ("`batchkiln doctor` looks for the cause", "`batchkiln doctor` looks for the cause"),
    ],
)
def test_commands_become_calls_where_there_are_some(text: str, told: str) -> None:
    """What has no call stays a command."""
    assert in_python_words(text) == told
    assert in_python_words(told) == told  # an error that is raised again stays as it is


COMMANDS_OF_A_SHELL: Final = re.compile(
    r"`batchkiln (doctor|init|migrate|queue|serve|show --bundle|token|watch|workers|work --profile)\b[^`]*`"
)
"""They have no call: a person types them."""

OF_COMMANDS_ALONE: Final = ("cli/", "dashboard/", "doctor/", "notifications/", "watch/", "presentation/takers.py")
"""Parts of the program whose texts no method of a queue returns, raises or logs."""

TEXTS_OF_COMMANDS: Final = ("--egress: ", "--log-file: ", "doctor --probe", "name items, or choose them by options")
"""The same of single texts."""

COMMAND_LINE: Final = re.compile(r"(?<![\w`-])`?--[a-z]|`batchkiln |\b(the|same) command\b|`work`")


def texts_of(source: str) -> Iterator[str]:
    """Yield the texts of a module but its docstrings; a value in a text is NAME."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    left_out = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    left_out |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"\{\w+\}", "NAME", node.value)
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "NAME"
                for part in node.values
            )


def test_no_text_that_a_program_may_read_keeps_the_command_line() -> None:
    """Each text of the program that names an option or a command with a call has Python's words for it."""
    root = Path(batchkiln.__file__).parent
    kept = [
        f"{path.relative_to(root)}: {in_python_words(text)}"
        for path in sorted(root.rglob("*.py"))
        if not path.relative_to(root).as_posix().startswith((*OF_COMMANDS_ALONE, "presentation/python_words.py"))
        for text in texts_of(path.read_text("utf-8"))
        if " " in text.strip() and not text.startswith(TEXTS_OF_COMMANDS)
        if COMMAND_LINE.search(COMMANDS_OF_A_SHELL.sub("", in_python_words(text)))
    ]

    assert kept == []
