"""The names of output files: a pattern with fields, filled by values that can never leave their place.

A pattern is text with fields in braces; `{{` and `}}` stand for the braces themselves, '/' separates folders.
The fields `job`, `item`, `index`, `output`, `model` and `ext` are known once a file is saved; any other field is
a variable or a metadata key of the item, and is filled by `prerender` when the manifest is read. What `prerender`
gives is a pattern again, with its values escaped, so that no value can bring in a field.

Letter case is left alone: on a file system that ignores it, ids that differ only in case need another pattern.
"""

import base64
import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

BUILT_IN_FIELDS: Final = ("job", "item", "index", "output", "model", "ext")
MAX_PATTERN_LENGTH: Final = 10_000  # a prerendered pattern holds values
VALUE_SIZE_BYTES: Final = 120
COMPONENT_SIZE_BYTES: Final = 200  # file systems allow 255; the rest is for the suffix of a temporary file
HASH_LENGTH: Final = 12  # base32: 60 bits, so that a million changed ids do not meet by chance

_NUMERIC: Final = frozenset({"index", "output"})
_TOKEN: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_WIDTH: Final = re.compile(r"0?([1-9][0-9]?)d")
# Separators, what Windows refuses in names, control and format characters that would hide or reorder a name.
_UNSAFE: Final = re.compile('[\x00-\x1f\x7f-\x9f/\\\\:*?"<>|\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]')
_RESERVED: Final = re.compile(r"(?i:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])[ ]*(?:\..*)?")
_HASHED: Final = re.compile(r".*~[a-z2-7]{12}", re.DOTALL)


class PatternError(ValueError):
    """A pattern that cannot be used; the text says why. `offset` is the place in it, from 0."""

    def __init__(self, reason: str, offset: int = 0) -> None:
        """Take the reason as a sentence."""
        self.reason = reason
        self.offset = offset
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Literal text, or a field where `field` is not empty."""

    text: str
    field: str = ""
    width: int = 0


def fields(pattern: str) -> frozenset[str]:
    """Give the names of the fields of a pattern. Raises `PatternError`."""
    return frozenset(piece.field for component in _parse(pattern) for piece in component if piece.field)


def needs_variables(pattern: str) -> bool:
    """Whether some field can only be filled from an item's variables or metadata."""
    return any(name not in BUILT_IN_FIELDS for name in fields(pattern))


def identifies_item(pattern: str) -> bool:
    """Whether two items of one job can never get the same name for their first outputs.

    True where one component holds {item} or {index} so that its value can be read back from the name.
    `{kind}-{item}` does not: kind `a-b` with item `c` reads like kind `a` with item `b-c`.
    """
    return any(_reads_back(component) for component in _parse(pattern))


def prerender(pattern: str, values: Mapping[str, str]) -> str:
    """Fill in the variables, and give a pattern that holds only built-in fields.

    `values` must hold every field that is not built in: KeyError names the first that is missing.
    """
    text, names = _prepared(pattern)
    return text % tuple([_escaped(safe_value(values[name])) for name in names])


def render(pattern: str, *, job: str, item: str, index: int, output: int, model: str, ext: str) -> str:
    """Give the relative path of an output. `output` counts from 1, `ext` has no dot.

    The path has no '..', no empty component and no control character, whatever the values hold.
    """
    components = _parse(pattern)
    texts = {"job": job, "item": item, "model": model, "ext": ext}
    numbers = {"index": index, "output": output}

    def fill(piece: _Piece) -> str:
        if not piece.field:
            return piece.text
        if piece.field in _NUMERIC:
            return f"{numbers[piece.field]:0{piece.width}d}" if piece.width else str(numbers[piece.field])
        return safe_value(texts[piece.field])

    folders = [_safe_component("".join(map(fill, component)), "") for component in components[:-1]]
    names_output = any(piece.field == "output" for component in components for piece in component)
    suffix = "" if names_output or output == 1 else f"-{output}"
    return "/".join([*folders, _file_name(components[-1], suffix, fill)])


def safe_value(value: str) -> str:
    """Make one value fit for a part of a file name; different values stay different.

    A value that had to be changed gets `~` and a hash of the original. One that already looks so is
    changed as well: otherwise it could be the changed form of another.
    """
    return _safe_ascii(value) if len(value) <= VALUE_SIZE_BYTES and value.isascii() else _safe(value, VALUE_SIZE_BYTES)


@lru_cache(maxsize=4096)
def _safe_ascii(value: str) -> str:
    return _safe(value, VALUE_SIZE_BYTES)


def _safe(value: str, size_bytes: int) -> str:
    # The beginning is enough, as a longer value is cut: normalizing takes the square of a run of accents.
    clean = _cleaned(value[: 8 * size_bytes])
    if clean == value and len(clean.encode()) <= size_bytes and not _HASHED.fullmatch(value):
        return value
    return f"{_cut(clean, size_bytes - HASH_LENGTH - 1)}~{_hash(value)}"


def _cleaned(value: str) -> str:
    """Give the value without what may not stand in a component; never empty."""
    clean = _UNSAFE.sub("_", unicodedata.normalize("NFC", _UNSAFE.sub("_", value))).strip(" ").rstrip(". ")
    if _RESERVED.fullmatch(clean) or clean.startswith("."):
        clean = "_" + clean
    return clean or "_"


def _cut(text: str, size_bytes: int) -> str:
    return text.encode()[:size_bytes].decode(errors="ignore").rstrip(". ")


def _hash(value: str) -> str:
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest).decode("ascii")[:HASH_LENGTH].lower()


def _safe_component(head: str, tail: str) -> str:
    """Join a component from its name and its end (`-2.png`), which is kept when the name is cut."""
    room = COMPONENT_SIZE_BYTES - len(tail.encode())
    too_long = len(head.encode()) > room
    whole = head + tail
    if not too_long and whole not in {"", ".", ".."} and whole == whole.rstrip(". ") and not _RESERVED.fullmatch(whole):
        return whole
    prefix = "_" if _RESERVED.fullmatch(whole) or not head.strip(". ") else ""
    return f"{prefix}{_cut(head, room - HASH_LENGTH - 2)}~{_hash(head)}{tail.rstrip('. ')}"


def _file_name(component: tuple[_Piece, ...], suffix: str, fill: Callable[[_Piece], str]) -> str:
    """Put the suffix of a later output before the extension: `.{ext}`, or the last dot of a literal end."""
    head, tail = component, ""
    extension_at = max((at for at, piece in enumerate(component) if piece.field == "ext"), default=None)
    if extension_at is not None:
        head, tail = component[:extension_at], "".join(map(fill, component[extension_at:]))
    stem = "".join(map(fill, head))
    if extension_at is not None and stem.endswith("."):
        return _safe_component(stem[:-1], f"{suffix}.{tail}")
    last = component[-1]
    if extension_at is None and not last.field and (dot := last.text.rfind(".")) >= 0:
        length = len(last.text) - dot
        return _safe_component(stem[:-length], suffix + stem[-length:])
    return _safe_component(stem, suffix + tail)


@lru_cache(maxsize=64)
def _prepared(pattern: str) -> tuple[str, tuple[str, ...]]:
    """Give the pattern with a `%s` for each variable, and their names."""
    components = _parse(pattern)
    names = [piece.field for component in components for piece in component]
    text = "/".join("".join(map(_unfilled, component)) for component in components)
    return text, tuple(name for name in names if name and name not in BUILT_IN_FIELDS)


def _unfilled(piece: _Piece) -> str:
    if not piece.field:
        return _escaped(piece.text).replace("%", "%%")
    if piece.field in BUILT_IN_FIELDS:
        return f"{{{piece.field}:0{piece.width}d}}" if piece.width else f"{{{piece.field}}}"
    return "%s"


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


@lru_cache(maxsize=4096)
def _parse(pattern: str) -> tuple[tuple[_Piece, ...], ...]:
    """Give the components of a pattern, each a run of pieces. Raises `PatternError`."""
    if not pattern.strip() or len(pattern) > MAX_PATTERN_LENGTH:
        raise PatternError(f"a file name pattern holds 1 to {MAX_PATTERN_LENGTH:,} characters")
    components: list[list[_Piece]] = [[]]
    for match in _TOKEN.finditer(pattern):
        token, name = match[0], match[1]
        if token in {"{", "}"}:
            raise PatternError(
                f"a single {token!r} in the file name pattern; write {token * 2!r} for a brace", match.start()
            )
        if name is not None:
            components[-1].append(_field(name, match.start()))
            continue
        first, *others = (token[0] if token in {"{{", "}}"} else token).split("/")
        _add_literal(components[-1], first, match.start())
        for other in others:
            components.append([])
            _add_literal(components[-1], other, match.start())
    for component in components:
        _check_component(component)
    return tuple(map(tuple, components))


def _add_literal(component: list[_Piece], text: str, offset: int) -> None:
    if found := _UNSAFE.search(text):
        raise PatternError(f"{found[0]!r} may not stand in a file name", offset + found.start())
    if text and component and not component[-1].field:
        component[-1] = _Piece(component[-1].text + text)
    elif text:
        component.append(_Piece(text))


def _field(content: str, offset: int) -> _Piece:
    name, colon, spec = content.partition(":")
    width = _WIDTH.fullmatch(spec)
    if not name.strip():
        raise PatternError("a field without a name", offset)
    if colon and (width is None or name not in _NUMERIC):
        raise PatternError(f"{{{content}}}: only {{index}} and {{output}} take a width, as in {{index:06d}}", offset)
    return _Piece("", name, int(width[1]) if width else 0)


def _check_component(component: list[_Piece]) -> None:
    literal = "".join(piece.text for piece in component)
    if not component:
        raise PatternError("a file name pattern is relative, and has no empty folder name ('//', or '/' at its ends)")
    if all(not piece.field for piece in component) and not literal.strip(". "):
        raise PatternError(f"{literal!r} may not be a folder of a file name pattern: files stay inside `output.dir`")


def _reads_back(component: tuple[_Piece, ...]) -> bool:
    for at, piece in enumerate(component):
        before, after = component[:at], component[at + 1 :]
        if piece.field == "item" and _is_framed(before[::-1]) and _is_framed(after):
            return True
        if piece.field == "index" and (
            (_is_fixed(before) and _starts_apart(after)) or (_is_framed(after) and _ends_apart(before))
        ):
            return True
    return False


def _is_fixed(pieces: tuple[_Piece, ...]) -> bool:
    """Whether the pieces give the same text for each item of a job."""
    return all(piece.field in {"", "job"} for piece in pieces)


def _is_framed(pieces: tuple[_Piece, ...]) -> bool:
    """Whether the pieces beside a free text, nearest first, are told apart from it: fixed, or set off by a sign."""
    return all(
        piece.field in {"", "job"}
        or (piece.field in {"ext", "output"} and at > 0 and bool(pieces[at - 1].text.strip("0123456789")))
        for at, piece in enumerate(pieces)
    )


def _starts_apart(after: tuple[_Piece, ...]) -> bool:
    return not after or (after[0].field == "" and not after[0].text[0].isdigit())


def _ends_apart(before: tuple[_Piece, ...]) -> bool:
    return not before or (before[-1].field == "" and not before[-1].text[-1].isdigit())
