"""Ways through the manual: every page is near the README, every link leads somewhere, every command shown is one."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import click
import pytest

from batchkiln.cli.main import program

ROOT: Final = Path(__file__).resolve().parents[2]
GUIDES: Final = ROOT / "docs" / "guides"
PAGES: Final = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(
        page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "site"
    ),  # those lead a site of its own
]
TASKS: Final = {
    "first-batch",
    "overnight-batch",
    "image-inputs",
    "budgets",
    "several-accounts",
    "several-machines",
    "containers",
    "systemd",
    "operate",
    "held",
    "http",
    "new-account",
    "pipelines",
    "quality-filter",
    "datasets",
    "rehearsing",
    "another-machine",
    "from-prompts-to-clips",
    "redo",
    "object-storage",
}
CLICKS: Final = 2
_BLOCK: Final = re.compile(r"^```(sh|bash|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ENDS: Final = {"&&", "||", "|", ";", "&", ">", ">>", "<", "(", ")"}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def links_of(page: Path) -> list[tuple[Path, str]]:
    """Return where a page's links within the repository lead: the file, and the heading in it or nothing."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="(?!http)([^"]+)"', text)
    parts = [target.partition("#") for target in targets]
    return [((page.parent / path).resolve() if path else page, heading) for path, _, heading in parts]


def headings_of(page: Path) -> set[str]:
    """Return a page's headings as links name them."""
    found = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def near(page: Path) -> set[Path]:
    """Return the files that are so many clicks from a page, or fewer."""
    reached = {page}
    for _ in range(CLICKS):
        reached |= {target for near in reached if near.suffix == ".md" for target, _ in links_of(near)}
    return reached


def test_each_task_has_its_guide() -> None:
    """The guides are those of the tasks, and their list names each of them."""
    listed = {path.stem for path, _ in links_of(GUIDES / "README.md") if path.parent == GUIDES}

    assert {page.stem for page in GUIDES.glob("*.md")} == TASKS | {"README"}
    assert listed == TASKS


@pytest.mark.parametrize("start", [ROOT / "README.md", GUIDES / "README.md"], ids=named)
def test_every_page_is_near(start: Path) -> None:
    """Two clicks lead to any page of the manual, from the README and from the guides."""
    assert [named(page) for page in PAGES[1:] if page not in near(start)] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    """A link names a file that is there, and a heading that the file has."""
    broken = [
        f"{named(path)}#{heading}"
        for path, heading in links_of(page)
        if not path.exists() or (heading and heading not in headings_of(path))
    ]

    assert broken == []


def shown_commands(page: Path) -> Iterator[list[str]]:
    """Give each use of the program in a page's blocks of commands, in words."""
    for language, text in _BLOCK.findall(page.read_text("utf-8")):
        joined = text.replace("\\\n", " ")
        lines = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
        for line in lines if language == "console" else joined.splitlines():
            yield from _uses(line)


def _uses(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(re.sub(r"\$\w+", "1", re.sub(r"\b2>", ">", line)), posix=True, punctuation_chars="();&|<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quotation of several lines, which is another program's
        return
    while words:
        end = next((place for place, word in enumerate(words) if word in _ENDS), len(words))
        use, words = words[:end], words[end + 1 :]
        starts = [place for place, word in enumerate(use) if word == "batchkiln" or word.endswith("/bin/batchkiln")]
        if starts and all("=" in word or word in {"nohup", "exec"} for word in use[: starts[0]]):
            yield use[starts[0] + 1 :]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_shown_commands_are_understood(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `batchkiln` of a block is a command with options that it has and as many arguments as it takes."""
    (tmp_path / "inbox").mkdir()
    monkeypatch.chdir(tmp_path)

    for words in shown_commands(page):
        _understand("batchkiln", program, words, None)


def _understand(
    name: str | None, command: click.Command | None, words: list[str], parent: click.Context | None
) -> None:
    assert command is not None
    if not isinstance(command, click.Group):
        command.make_context(name, words, parent=parent)
        return
    context = click.Context(command, info_name=name, parent=parent)
    _, rest, _ = command.make_parser(context).parse_args(words)
    if rest:
        _understand(*command.resolve_command(context, rest), context)
