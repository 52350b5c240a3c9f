"""Remedies in the words of a Python program: calls in place of commands, arguments in place of options."""

import re
import shlex
from typing import Final

_OPTION: Final = re.compile(r"`?--on-change (?P<value>[a-z]+)`?|`?--(?P<flag>no-catalogue|allow-duplicates|prune)`?")
_CALLS: Final = "status|unpause|pause|retry|cancel|redo|items|show|fetch|review"
_COMMAND: Final = re.compile(rf"`batchkiln (?P<call>{_CALLS})(?P<names> [^`]+)?`")
_EXIT: Final = re.compile(r" \(exit \d\)")


def in_python_words(text: str) -> str:
    """Return a text with the queue's methods and their arguments; what has no call, such as `doctor`, stays."""
    return _EXIT.sub("", _COMMAND.sub(_call, _OPTION.sub(_argument, text)))


def _argument(option: re.Match[str]) -> str:
    if flag := option["flag"]:
        return f"`{flag.replace('-', '_')}=True`"
    return f'`on_change="{option["value"]}"`'


def _call(command: re.Match[str]) -> str:
    names = shlex.split(command["names"] or "")
    if command["call"] == "status" and not names:
        return "`queue.overview()`"
    if any(name.startswith("-") for name in names):  # an option of the command alone
        return command[0]
    job, *items = map(repr, names or ["JOB"])
    if command["call"] == "review":
        return command[0] if items else f"`queue.review_step({job})`"
    given = [job, *items] if command["call"] == "show" or not items else [job, f"[{', '.join(items)}]"]
    return f"`queue.{command['call']}({', '.join(given)})`"
