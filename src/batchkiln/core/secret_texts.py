"""Takes API keys out of texts (Law 8)."""

import re
from collections.abc import Iterable
from typing import Final

_SHORT: Final = 8
"""A key of fewer characters, as a local service may have, is part of many words."""


def mask_keys(text: str, keys: Iterable[str]) -> str:
    """Replace API keys in a text by `[key]`: a short one only where it is a whole word."""
    for key in keys:
        if len(key) >= _SHORT:
            text = text.replace(key, "[key]")
        elif key:
            text = re.sub(rf"(?<![\w-]){re.escape(key)}(?![\w-])", "[key]", text)
    return text
