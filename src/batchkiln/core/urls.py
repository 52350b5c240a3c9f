"""URLs in texts for a person."""

import re
from typing import Final

_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s]*@")
_QUERY: Final = re.compile(r"(?<=\S)\?\S+")


def redacted(text: str) -> str:
    """Return a text without the credentials and query strings of its URLs (Law 8)."""
    return _QUERY.sub("?…", _CREDENTIALS.sub("…@", text))
