"""Whether this system can write any character in a file name. Each command checks an error for it."""

import sys
from typing import Final

FILENAME_ENCODING_ERROR: Final = (
    "Python cannot encode every file name in this locale "
    f"(the file system's encoding is {sys.getfilesystemencoding()}). "
    "Set PYTHONUTF8=1, or a UTF-8 locale such as LC_ALL=C.UTF-8, and run the same command again"
)


def can_encode_filenames() -> bool:
    """Return whether this system can write any character in a file name. If not, a paid result might not be saved."""
    return sys.getfilesystemencoding().lower().replace("-", "") in {"utf8", "mbcs"}
