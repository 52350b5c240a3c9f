"""Plain scalars as the core schema of YAML 1.2 reads them: null, true, false, numbers; all else is text.

https://yaml.org/spec/1.2.2/#103-core-schema: unlike in YAML 1.1, `no`, `on`, `16:9`, `1_000` and `2020-01-01` are text.
"""

import re
from typing import Final

type_names: Final = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}

MAX_NUMBER_LENGTH: Final = 40  # longer digits are no quantity of anything here, and int() has its own bound
_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)

Value = str | int | float | bool | None


def resolve(text: str) -> Value:
    """Give the value of a plain (unquoted) scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789" or len(text) > MAX_NUMBER_LENGTH:
        return text
    if _INT.fullmatch(text):
        return int(text, 8) if text.startswith("0o") else int(text, 16) if text.startswith("0x") else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
