"""What a prompt and an item's id may hold; checked once for each item, so the good ones pass in a few steps."""

import re
import unicodedata
from typing import Final

from batchkiln.manifest.diagnostics import Remedy, quoted
from batchkiln.manifest.schema import MAX_ID_LENGTH, MAX_PROMPT_LENGTH

_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_FORBIDDEN_IN_ID: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class NotAllowed(Exception):
    """A prompt or id that cannot be used: the reason and the remedy."""

    def __init__(self, reason: str, remedy: Remedy = None) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(reason)


def checked_prompt(text: str) -> str:
    """Give the prompt with its line ends as line feeds. Raises `NotAllowed`."""
    if len(text) > MAX_PROMPT_LENGTH:
        remedy = f"at most {MAX_PROMPT_LENGTH:,} characters; a model may allow fewer"
        raise NotAllowed(f"the prompt has {len(text):,} characters", remedy)
    if not text.isprintable():
        text = text.replace("\r\n", "\n")
        if found := _FORBIDDEN.search(text):
            raise NotAllowed(
                f"the prompt holds {_code_point(found[0])}", "remove it; of these only line feed and tab are allowed"
            )
    if not text or text.isspace():
        raise NotAllowed("the prompt is empty", "write what is to be made (Service section 2.2)")
    return text


def checked_id(text: str) -> str:
    """Give the id as it is. Raises `NotAllowed`."""
    if text and text.isprintable() and len(text) <= MAX_ID_LENGTH and text[0] != " " and text[-1] != " ":
        return text
    if not text:
        raise NotAllowed("the id is empty", "leave `id` out to number the items")
    if len(text) > MAX_ID_LENGTH:
        raise NotAllowed(f"the id has {len(text):,} characters", f"at most {MAX_ID_LENGTH}")
    if found := _FORBIDDEN_IN_ID.search(text):
        raise NotAllowed(f"the id holds {_code_point(found[0])}", "remove it")
    if text != text.strip():
        raise NotAllowed(f"the id {quoted(text)!r} begins or ends with white space", "remove the white space")
    return text


def _code_point(character: str) -> str:
    name = unicodedata.name(character, "a control character" if ord(character) < 0xD800 else "half of a surrogate pair")  # noqa: PLR2004  where surrogates begin
    return f"U+{ord(character):04X} ({name.lower()})"
