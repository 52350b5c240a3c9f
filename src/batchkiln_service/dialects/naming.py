"""Spellings of field names, and reversible forms of identifiers."""

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final

from msgspec import Struct

from batchkiln_service.dialects.traits import Dialect

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HEX_DIGITS: Final = 24  # of the service's identifiers, without their prefix
_NOT_KNOWN: Final = "unknown"


def spelled(name: str, spelling: str) -> str:
    """Return a snake_case name in another spelling."""
    words = name.split("_")
    match spelling:
        case "camel":
            return words[0] + "".join(word.capitalize() for word in words[1:])
        case "kebab":
            return "-".join(words)
        case "pascal":
            return "".join(word.capitalize() for word in words)
        case _:
            return name


class Ids(Struct, frozen=True):
    """A reversible form of identifiers such as `gen_0123456789abcdef01234567`."""

    prefix: str
    form: str

    def shown(self, own: str) -> str | int:
        """Return the identifier that clients see."""
        digits = own.removeprefix(f"{self.prefix}_")
        return _FORMS[self.form](own, digits)

    def own(self, shown: object) -> str:
        """Return the service's identifier. For a text that was never sent, return an identifier that does not exist."""
        text = str(shown)
        for candidate in (text, text.lower(), text.upper()):
            own = self._read(candidate)
            if own is not None and str(self.shown(own)) == candidate:
                return own
        return _NOT_KNOWN

    def _read(self, text: str) -> str | None:
        digits: str | None = None
        match self.form:
            case "int" | "digits":
                digits = f"{int(text):x}" if re.fullmatch(r"[0-9]{1,20}", text) else None
            case "uuid":
                plain = text.replace("-", "")
                digits = plain[:12] + plain[13:16] + plain[17:26] if len(plain) == 32 else None  # noqa: PLR2004
            case "base62":
                digits = _from_base62(text)
            case "long":
                digits = text[:_HEX_DIGITS]
            case _:
                digits = text.lower().removeprefix(f"{self.prefix}_")
        if digits is None or not re.fullmatch(r"[0-9a-f]{1,24}", digits):
            return None
        return f"{self.prefix}_{digits:0>{_HEX_DIGITS}}"


def generation_ids(dialect: Dialect) -> Ids:
    """Return the form of generation identifiers."""
    return Ids("gen", dialect["generation_id"])


def asset_ids(dialect: Dialect) -> Ids:
    """Return the form of asset identifiers."""
    return Ids("ast", dialect["asset_id"])


def _uuid(digits: str) -> str:
    plain = f"{digits[:12]}4{digits[12:15]}a{digits[15:]}{sha256(digits.encode()).hexdigest()[:6]}"
    return f"{plain[:8]}-{plain[8:12]}-{plain[12:16]}-{plain[16:20]}-{plain[20:]}"


def _base62(number: int) -> str:
    text = ""
    while number:
        number, rest = divmod(number, 62)
        text = _BASE62[rest] + text
    return text


def _from_base62(text: str) -> str | None:
    if not re.fullmatch(r"[0-9A-Za-z]{1,24}", text):
        return None
    number = 0
    for character in text:
        number = number * 62 + _BASE62.index(character)
    return f"{number:x}"


_FORMS: Final[Mapping[str, Callable[[str, str], str | int]]] = {  # the hexadecimal digits of the service's identifier
    "prefix_hex": lambda own, _: own,
    "int": lambda _, digits: int(digits, 16),
    "digits": lambda _, digits: str(int(digits, 16)),
    "uuid": lambda _, digits: _uuid(digits),
    "base62": lambda _, digits: _base62(int(digits, 16)),
    "long": lambda _, digits: f"{digits}{sha256(digits.encode()).hexdigest()[:40]}",
    "upper": lambda own, _: own.upper(),
}
