"""Names output files by a pattern with fields, filled with values that can never leave their path component.

A pattern is text with fields in braces; `{{` and `}}` are literal braces, and '/' separates folders. The fields `job`,
`item`, `index`, `output`, `model` and `ext` are known once a file is saved. Any other field is a variable or metadata
key of the item and is filled by `prerender` when the manifest is read. `prerender` returns a pattern with its values
escaped, so that no value can add a field.

Letter case is kept: on a file system that ignores it, ids that differ only in case need another pattern.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

BUILT_IN_FIELDS: Final = ("job", "item", "index", "output", "model", "ext")
MAX_PATTERN_LENGTH: Final = 10_000  # a prerendered pattern contains values
VALUE_SIZE_BYTES: Final = 120
COMPONENT_SIZE_BYTES: Final = 200  # file systems allow 255; the rest is for a temporary suffix
_SURELY_WHOLE_BYTES: Final = COMPONENT_SIZE_BYTES - 20  # no extension is so long that a name of this size is cut for it
HASH_LENGTH: Final = 12  # base32 digits: 60 bits, enough for a million changed ids without a collision

VERSIONS: Final = ".v{version}"
"""The default of what stands before the extension in the names of later versions."""

_VERSIONS: Final = re.compile(r"[A-Za-z0-9._~ -]{0,20}\{version\}[A-Za-z0-9_~-]{0,20}")
_NUMERIC: Final = frozenset({"index", "output"})
_TOKEN: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_WIDTH: Final = re.compile(r"0?([1-9][0-9]?)d")
# Separators, characters that Windows refuses, and control and format characters that hide or reorder a name.
_UNSAFE: Final = re.compile('[\x00-\x1f\x7f-\x9f/\\\\:*?"<>|\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]')
_RESERVED: Final = re.compile(r"(?i:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])[ ]*(?:\..*)?")
_HASHED: Final = re.compile(r".*~[a-z2-7]{12}", re.DOTALL)


class PatternError(ValueError):
    """An unusable pattern; `offset` is the position of the fault, from 0."""

    def __init__(self, reason: str, offset: int = 0) -> None:
        """Initialize with the reason and the position of the fault."""
        self.reason = reason
        self.offset = offset
        super().__init__(reason)


class _Piece(Struct, frozen=True):
    """Literal text, or a field if `field` is not empty."""

    text: str
    field: str = ""
    width: int = 0


def fields(pattern: str) -> frozenset[str]:
    """Return the names of a pattern's fields. Raise `PatternError`."""
    return frozenset(piece.field for component in _parse(pattern) for piece in component if piece.field)


def identifies_item(pattern: str) -> bool:
    """Return whether two items of a job can never get the same name for their first outputs.

    That holds if one component contains {item} or {index} such that its value can be read back from the name.
    `{kind}-{item}` does not: kind `a-b` with item `c` reads like kind `a` with item `b-c`.
    """
    return any(_READS_BACK.fullmatch("".join(map(_shape, component))) for component in _parse(pattern))


def prerender(pattern: str, values: Mapping[str, str]) -> str:
    """Fill in the variables, and return a pattern with only built-in fields.

    `values` must contain every other field. Raise `KeyError` with the first missing name.
    """
    text, names = _prepared(pattern)
    return text % tuple([_literal_braces(safe_value(values[name])) for name in names])


@lru_cache(maxsize=64)  # a download renders the name of its first file twice
def render(
    pattern: str,
    *,
    job: str,
    item: str,
    index: int,
    output: int,
    model: str,
    ext: str,
    version: int = 1,
    versions: str = VERSIONS,
) -> str:
    """Return the relative path of an output. `output` and `version` count from 1; `ext` has no dot.

    A version after the first has `versions`, filled in, before the extension. The path has no '..', no empty component
    and no control character, whatever the values hold.
    """
    texts = {"job": job, "item": item, "model": model, "ext": ext}
    numbers = {"index": index, "output": output}

    def fill(piece: _Piece) -> str:
        if not piece.field:
            return piece.text
        if piece.field in _NUMERIC:
            return f"{numbers[piece.field]:0{piece.width}d}" if piece.width else str(numbers[piece.field])
        return safe_value(texts[piece.field])

    folders, file, names_output, _ = _layout(pattern)
    suffix = "" if names_output or output == 1 else f"-{output}"
    suffix += "" if version == 1 else versions.replace("{version}", str(version))
    parents = "".join(_safe_component("".join(map(fill, folder)), "") + "/" for folder in folders)
    return parents + _file_name(file, suffix, fill)


def with_extension(name: str, pattern: str, extension: str, other: str) -> str | None:
    """Return what `render` gives with another extension; None if it has to be asked.

    `name` is what it gave for the same pattern and values with `extension`. Only the end differs, unless the pattern
    has the extension elsewhere too, or the name is so long that it may have been cut to the room that the end leaves.
    """
    is_short = len(name.rpartition("/")[2].encode()) <= _SURELY_WHOLE_BYTES
    return name[: -len(extension)] + other if is_short and _layout(pattern)[3] else None


def is_version_pattern(text: str) -> bool:
    """Return whether a text has `{version}` once, and otherwise only characters that every file system allows.

    `-{version}` and `~{version}` alone are not allowed: `-2` marks a second output, and `~2` a name that was taken.
    """
    return _VERSIONS.fullmatch(text) is not None and text not in {"-{version}", "~{version}"}


def safe_value(value: str) -> str:
    """Return a value made safe for a file name; different values stay different.

    A changed value gets `~` and a hash of the original. A value that already looks like a changed one is changed too,
    because it could equal the changed form of another value.
    """
    return _safe_ascii(value) if len(value) <= VALUE_SIZE_BYTES and value.isascii() else _safe(value, VALUE_SIZE_BYTES)


@lru_cache(maxsize=4096)
def _safe_ascii(value: str) -> str:
    return _safe(value, VALUE_SIZE_BYTES)


def _safe(value: str, size_bytes: int) -> str:
    # A longer value is cut anyway, and normalizing is quadratic in a run of combining accents.
    clean = _cleaned(value[: 8 * size_bytes])
    if clean == value and len(clean.encode()) <= size_bytes and not _HASHED.fullmatch(value):
        return value
    return f"{_cut(clean, size_bytes - HASH_LENGTH - 1)}~{_hash(value)}"


def _cleaned(value: str) -> str:
    """Return the value without characters that a component cannot contain; never empty."""
    clean = _UNSAFE.sub("_", unicodedata.normalize("NFC", _UNSAFE.sub("_", value))).strip(" ").rstrip(". ")
    if _RESERVED.fullmatch(clean) or clean.startswith("."):
        clean = "_" + clean
    return clean or "_"


def _cut(text: str, size_bytes: int) -> str:
    return text.encode()[:size_bytes].decode(errors="ignore").rstrip(". ")


def _hash(value: str) -> str:
    import base64  # noqa: PLC0415  few names need a hash
    import hashlib  # noqa: PLC0415  likewise

    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest).decode("ascii")[:HASH_LENGTH].lower()


def _safe_component(head: str, tail: str) -> str:
    """Join a name and its end (`-2.png`) into a component; if it is too long, the name is cut and the end kept."""
    room = COMPONENT_SIZE_BYTES - len(tail.encode())
    too_long = len(head.encode()) > room
    whole = head + tail
    if not too_long and whole not in {"", ".", ".."} and whole == whole.rstrip(". ") and not _RESERVED.fullmatch(whole):
        return whole
    prefix = "_" if _RESERVED.fullmatch(whole) or not head.strip(". ") else ""
    return f"{prefix}{_cut(head, room - HASH_LENGTH - 2)}~{_hash(head)}{tail.rstrip('. ')}"


@lru_cache(maxsize=64)
def _layout(pattern: str) -> tuple[tuple[tuple[_Piece, ...], ...], tuple[_Piece, ...], bool, bool]:
    """Return the pieces of a pattern's folders and of its file, and two facts about it.

    These are whether it contains {output}, and whether it ends with {ext} and has it nowhere else.
    """
    *folders, file = _parse(pattern)
    fields = [piece.field for component in (*folders, file) for piece in component]
    return tuple(folders), file, "output" in fields, fields[-1] == "ext" and fields.count("ext") == 1


def _file_name(component: tuple[_Piece, ...], suffix: str, fill: Callable[[_Piece], str]) -> str:
    """Return the file name with the output's suffix before the extension: `.{ext}`, or a literal end after a dot."""
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
    """Return the pattern with a `%s` for each variable, and the variables' names."""
    components = _parse(pattern)
    names = [piece.field for component in components for piece in component]
    text = "/".join("".join(map(_unfilled, component)) for component in components)
    return text, tuple(name for name in names if name and name not in BUILT_IN_FIELDS)


def _unfilled(piece: _Piece) -> str:
    if not piece.field:
        return _literal_braces(piece.text).replace("%", "%%")
    if piece.field in BUILT_IN_FIELDS:
        return f"{{{piece.field}:0{piece.width}d}}" if piece.width else f"{{{piece.field}}}"
    return "%s"


def _literal_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


@lru_cache(maxsize=4096)
def _parse(pattern: str) -> tuple[tuple[_Piece, ...], ...]:
    """Return the components of a pattern, each a tuple of pieces. Raise `PatternError`."""
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
        raise PatternError(f"{found[0]!r} is not allowed in a file name", offset + found.start())
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


def _shape(piece: _Piece) -> str:
    """Return a letter for a field; for a text, `d` for each digit and `c` for any other character."""
    if piece.field:
        return _SHAPES.get(piece.field, "F")
    return "".join("d" if character.isdigit() else "c" for character in piece.text)


_SHAPES: Final = {"job": "J", "item": "I", "index": "N", "ext": "E", "output": "E"}

# A part beside free text can be separated from it if it is equal for all items, or is an extension or number that
# something other than digits delimits. An index can also be separated from any text without a digit beside it.
_READS_BACK: Final = re.compile(r"(?:[Jcd]|Ed*c)*I(?:[Jcd]|cd*E)*|[Jcd]*N(?:c.*)?|(?:.*c)?N(?:[Jcd]|cd*E)*")
