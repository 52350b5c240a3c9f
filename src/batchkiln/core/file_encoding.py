"""Whether this process can name any file: Python encodes names as the locale said when it started."""

import sys
from typing import Final

NAMES_UNSPELLED: Final = (
    "in this locale Python cannot name every file "
    f"(the file system's encoding is {sys.getfilesystemencoding()}). "
    "Set PYTHONUTF8=1, or a UTF-8 locale such as LC_ALL=C.UTF-8, and run the same command again"
)


def can_spell_names() -> bool:
    """Tell whether every character may stand in a file's name; else a result that was paid could not be saved."""
    return sys.getfilesystemencoding().lower().replace("-", "") in {"utf8", "mbcs"}
