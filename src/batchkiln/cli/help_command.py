"""`batchkiln help`: the pages of the manual, one of their sections, or the help of a command."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

import batchkiln
from batchkiln.cli.command import Common, command
from batchkiln.cli.output import is_terminal, print_json, print_result, print_status
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.core.suggestions import closest, did_you_mean

_HEADING: Final = re.compile(r"^(##+) +(.+)$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]*\)")
_ENTRY: Final = re.compile(r"(?:-|\d+\.) \[[^\]]+\]\(([^)]+)\): (.+)")  # a page of an index, and what it is about
_ARTICLE: Final = re.compile(r"^(?:a|an|the)-(?=.)")
_OTHER_TOPICS: Final = {"credit": "budgets", "credits": "budgets", "price": "planning", "prices": "planning"}
_HINTS_SHOWN: Final = 8
_WORDS_OF_TOPIC: Final = 4  # a longer heading is a sentence, which nobody types
_OUTPUT: Final = re.compile(r"^<!-- shows -->\n", re.MULTILINE)  # between a command and what it prints
_COMMENT: Final = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_DIAGRAM: Final = re.compile(r"^```mermaid\n.*?^```\n", re.MULTILINE | re.DOTALL)


class Topic(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """A topic, with shell completion."""

    name = "topic"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the topics that start with `incomplete`."""
        del ctx, param
        return [CompletionItem(name) for name in topics() if name.startswith(incomplete)]


@command("help", example="batchkiln help\nbatchkiln help manifest\nbatchkiln help exit-codes\nbatchkiln help run")
@click.argument("topic", type=Topic(), required=False)
def help_topic(common: Common, topic: str | None) -> ExitStatus:
    """Show TOPIC: a page of the manual, a section of a page by its heading, or the help of a command.

    Without a topic, it lists the pages.
    """
    from batchkiln.cli.main import SUMMARIES, program  # noqa: PLC0415  `main` imports this module

    if topic is None:
        return _list(common)
    name = topic.removeprefix("guides/")
    topic = name if topic not in pages() and name in pages() else topic  # a guide by its file's name
    if topic in SUMMARIES and not (common.is_json and topic in pages()):
        program.main([topic, "--help"], prog_name="batchkiln", standalone_mode=False)
        if topic not in pages():
            return ExitStatus.OK
        print_result()
    text = None if _slug(topic) in _OTHER_TOPICS else _text_of(topic)
    if text is None and (meant := _meant(topic)) is not None:
        print_status(f"There is no topic {topic}; this is {meant}.")
        topic, text = meant, _text_of(meant)
    if text is None:
        raise InputError(f"there is no topic {topic}; {_hint(topic)}`batchkiln help` lists the topics")
    if common.is_json:
        print_json({"topic": topic, "text": text})
    elif is_terminal(sys.stdout):
        from batchkiln.cli.manual_markdown import ManualMarkdown  # noqa: PLC0415  Rich is slow to import
        from batchkiln.cli.rich_console import console  # noqa: PLC0415  likewise

        ManualMarkdown(text, hyperlinks=False).print_to(console())
    else:
        print_result(text)
    return ExitStatus.OK


def _meant(topic: str) -> str | None:
    """Return the singular or plural of a topic, or else the only topic with the word."""
    word = _slug(topic)
    if not word:
        return None
    if word in _OTHER_TOPICS:
        return _OTHER_TOPICS[word]
    other = word.removesuffix("s") if word.endswith("s") else f"{word}s"
    named = [name for name in _named(word) if f"-{word}-" in f"-{name}-"]
    found = [other] if other in pages() or other in _sections_of_all() else named
    return found[0] if len(found) == 1 and _text_of(found[0]) is not None else None


def _hint(topic: str) -> str:
    """Return a near command, and the commands that show the topics and the pages with the word or its beginning.

    If there is none of them, return a near topic or section, or nothing.
    """
    from batchkiln.cli.main import SUMMARIES  # noqa: PLC0415  as above

    word = _slug(topic)
    if not word:
        return ""
    named = _named(word)
    near = closest(word, SUMMARIES)
    hint = f"{did_you_mean(near)} " if near and near[0] not in named else ""
    found = [f"`batchkiln help {name}`" for name in named]
    if not near:
        found += [f'`batchkiln help {name}`, "{title}"' for name, title in _pages_with(word) if name not in named]
    if found:
        more = f"and {len(found) - _HINTS_SHOWN} more; " if len(found) > _HINTS_SHOWN else ""
        return f"{hint}this word is in\n    " + "\n    ".join([*found[:_HINTS_SHOWN], more])
    if not hint and (close := closest(word, [*topics(), *_sections_of_all()])):
        return f"{did_you_mean(close)} "
    return hint


def _named(word: str) -> list[str]:
    """Return the topics and the short names of sections that have the word or its beginning."""
    names = dict.fromkeys([*topics(), *_sections_of_all()])
    return [name for name in names if f"-{word}" in f"-{name}" and name.count("-") < _WORDS_OF_TOPIC]


def _sections_of_all() -> list[str]:
    return [_slug(heading[2]) for page in pages().values() for heading in _headings(page)]


def _pages_with(word: str) -> list[tuple[str, str]]:
    """Return the pages whose text has the word or its beginning, and the heading above it.

    Those with it in a heading are first, then those with the most places.
    """
    wanted = re.compile(rf"(?<![a-z0-9]){'[-_ ]'.join(word.split('-'))}", re.IGNORECASE)
    found: list[tuple[bool, int, str, str]] = []
    for name, page in pages().items():
        if places := list(wanted.finditer(page.read_text("utf-8"))):
            headings = _headings(page)
            own = next((heading for heading in headings if wanted.search(heading[2])), None)
            above = [heading for heading in headings if heading.start() < places[0].start()]
            nearest = own if own is not None else above[-1] if above else None
            title = _title(page) if nearest is None else nearest[2]
            found.append((own is None, -len(places), name, title.replace("`", "")))
    return [(name, title) for *_, name, title in sorted(found)]


def _slug(heading: str) -> str:
    """Return the name of a section: the words of its heading with hyphens between them, without an article."""
    words = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
    return _ARTICLE.sub("", words)


def _headings(page: Path) -> list[re.Match[str]]:
    return list(_HEADING.finditer(page.read_text("utf-8")))


def _list(common: Common) -> ExitStatus:
    titles = {name: _title(page) for name, page in pages().items()}
    if common.is_json:
        print_json({"topics": titles})
        return ExitStatus.OK
    width = max(map(len, titles))
    for heading, named in index_of_pages():
        print_result(f"{heading}:")
        for name, about in named:
            print_result(f"  {name:<{width}}  {about}", hanging=width + 4)
        print_result()
    print_result("`batchkiln help TOPIC` shows a page, and `batchkiln --help` lists the commands.")
    return ExitStatus.OK


def index_of_pages() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the sections of the manual's indexes with their pages: the name of each, and what it is about.

    The guides are first: each is a task.
    """
    names = {page: name for name, page in pages().items()}
    sections: list[tuple[str, list[tuple[str, str]]]] = [("Guides", [])]
    for index in (_manual() / "guides" / "README.md", _manual() / "README.md"):
        for line in index.read_text("utf-8").splitlines():
            if line.startswith("## "):
                sections.append((line.removeprefix("## "), []))
            elif (entry := _ENTRY.match(line)) and (name := names.get(index.parent / entry[1])) is not None:
                sections[-1][1].append((name, _LINK.sub(r"\1", entry[2])))
    return [section for section in sections if section[1]]


def topics() -> list[str]:
    """Return the names of pages and commands, and exit-codes."""
    from batchkiln.cli.main import SUMMARIES  # noqa: PLC0415  as above

    return [*pages(), *SUMMARIES, "exit-codes"]


def pages() -> dict[str, Path]:
    """Return the manual's pages by name. A guide with the name of another page is called `guides/NAME`, as its file."""
    manual = _manual()
    found = {page.stem: page for page in sorted(manual.glob("*.md")) if page.stem != "README"}
    found |= {page.stem: page for page in sorted((manual / "reference").glob("*.md"))}
    guides = [page for page in sorted((manual / "guides").glob("*.md")) if page.stem != "README"]
    found |= {f"guides/{page.stem}" if page.stem in found else page.stem: page for page in guides}
    return found | {"guides": manual / "guides" / "README.md"}


def _manual() -> Path:
    """Return the manual's folder: the installed package's, or that of the repository that the program runs from."""
    package = Path(batchkiln.__file__).parent
    manual = package / "manual"
    return manual if manual.is_dir() else package.parents[1] / "docs"


def _title(page: Path) -> str:
    return page.read_text("utf-8").partition("\n")[0].lstrip("# ")


def _text_of(topic: str) -> str | None:
    """Return a page by its name, or the first section whose heading is the topic; None if there is none."""
    found = pages()
    if topic in found:
        return _readable(found[topic].read_text("utf-8"))
    return next((_readable(section) for page in found.values() for section in _sections(page, topic)), None)


def _sections(page: Path, topic: str) -> Iterator[str]:
    text = page.read_text("utf-8")
    headings = list(_HEADING.finditer(text))
    for number, heading in enumerate(headings):
        if _slug(heading[2]) == _slug(topic):
            later = (each.start() for each in headings[number + 1 :] if len(each[1]) <= len(heading[1]))
            yield text[heading.start() : next(later, len(text))]


def _readable(text: str) -> str:
    """Return a page without diagrams, comments and the targets of links to other pages. Output is called so."""
    text = _COMMENT.sub("", _OUTPUT.sub("Output:\n\n", _DIAGRAM.sub("", text)))
    return _LINK.sub(r"\1", text).strip()
