"""Remedies in the words of a Python program: calls in place of commands, arguments in place of options."""

import re
import shlex
from collections.abc import Sequence
from typing import Final

_PHRASES: Final = (
    (re.compile(r"\bR(un|epeat) the (same )?command\b( again)?"), "Repeat the call"),
    (re.compile(r"\br(un|epeat) the (same )?command\b( again)?"), "repeat the call"),
    (
        re.compile(r"`run` does not send them, `work` may"),
        "a run of this job alone does not send them, `queue.run()` may",
    ),
    (re.compile(r"`run` (?=refuses|moves)"), "`enqueue` "),
    (re.compile(r"see --json\b"), "see `unpriced` of the job's plan"),
    (re.compile(r"^--to (?=[^ ]+: )"), ""),
    (re.compile(r" \(exit \d\)"), ""),
)
_WITH_VALUE: Final = "on-change|profile|format|link|contact-timeout|queue"
_FLAGS: Final = "no-catalogue|allow-duplicates|prune|forever"
_BARE: Final = "to|only|limit|sample|until|max-credits|config"
_OPTION: Final = re.compile(
    rf"(?P<tick>`?)(?<![\w-])--(?:(?P<name>{_WITH_VALUE})(?: (?P<value>[^\s,;`)]*[^\s,;:.`)]))?"
    rf"|(?P<flag>{_FLAGS})|(?P<bare>{_BARE}))(?![\w-])(?P=tick)"
)
_COMMAND: Final = re.compile(r"`batchkiln (?P<line>[^`]+)`")
_TAKE_VALUES: Final = frozenset({"--as", "--generation-id", "--state", "--drop"})
_CALLS: Final = {
    "status": "`queue.status({names})`",
    "items": "`queue.items({names})`",
    "items --state": "`queue.items({names}, state={state})`",
    "show": "`queue.show({names})`",
    "use-version": "`queue.use_version({item}, {version})`",
    "enqueue": "`queue.enqueue({manifest})`",
    "run": "`queue.enqueue({manifest})` and `queue.run()`",
    "work": "`queue.run({names})`",
    "work --forever": "`queue.start({each}forever=True)`",
    "ask-again": "`queue.ask_again({names})`",
    "review": "`queue.review_step({names})`",
    "review --drop": "`queue.drop({names}, [{drop}])`",
    "redo --stale": "`queue.redo({names}, queue.stale_items({names}))`",
    "resolve": "`queue.resolve({detail})`",
    "resolve --as": "`queue.resolve({detail}, {as})`",
    "resolve --as --generation-id": "`queue.resolve({detail}, {as}, generation_id={generation-id})`",
} | {name: f"`queue.{name}({{job}})`" for name in ("pause", "unpause", "retry", "cancel", "fetch", "redo")}
"""Calls by a command and its options."""
_WITHOUT_NAMES: Final = {"status": "`queue.overview()`", "run": "`queue.run()`"}


def in_python_words(text: str) -> str:
    """Return a text with the queue's methods and their arguments; what has no call, such as `doctor`, stays."""
    for phrase, told in _PHRASES:
        text = phrase.sub(told, text)
    parts = _COMMAND.split(text)  # texts and the lines of commands by turns
    return "".join(_call(part) if number % 2 else _OPTION.sub(_argument, part) for number, part in enumerate(parts))


def _argument(option: re.Match[str]) -> str:
    if flag := option["flag"]:
        return f"`{flag.replace('-', '_')}=True`"
    name, value = option["name"] or option["bare"], option["value"]
    if name == "queue":
        return f'`open_queue("{value}")`' if value else "`open_queue`"
    argument = name.replace("-", "_")
    if value is None:
        return f"`{argument}`"
    return f"`{argument}={value}`" if value.isdecimal() else f'`{argument}="{value}"`'


def _call(line: str) -> str:
    """Return the call of a command's line, both in backticks; the line itself if no call does the same."""
    try:
        command, *words = shlex.split(line)
    except ValueError:  # a name with a quotation mark, cut in a text
        return f"`batchkiln {line}`"
    options, names = _parsed(words)
    call = _CALLS.get(" ".join([command, *sorted(options)]), f"`batchkiln {line}`")
    if not names:
        call = _WITHOUT_NAMES.get(command, call)
    job, *items = names or ["JOB"]
    values = {
        "names": _listed(names),
        "each": "".join(f"{name!r}, " for name in names),
        "item": _listed(names[:-1]),
        "version": "".join(names[-1:]),
        "manifest": repr(job) if names and not job.startswith(("-", "<")) else "…",  # `-` or `<mapping>` was no file
        "detail": f"queue.show({_listed(names)})" if names else "…",
        "job": f"{job!r}{f', {items!r}' if items else ''}",
    } | {option.removeprefix("--"): repr(value) for option, value in options.items()}
    return call.format_map(values) if call.startswith("`queue.") else call


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _parsed(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options of a command's line with their values, and the names."""
    options: dict[str, str] = {}
    names: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return options, [*names, *rest]
        if word.startswith("--"):
            options[word] = next(rest, "") if word in _TAKE_VALUES else ""
        else:
            names.append(word)
    return options, names
