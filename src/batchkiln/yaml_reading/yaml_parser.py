"""The YAML parser: PyYAML's events with exact types, and the values of plain scalars.

PyYAML's own stubs allow None for attributes that a parsed event always has.
"""

import re
from typing import TYPE_CHECKING, Any, BinaryIO, Final

if TYPE_CHECKING:
    from batchkiln.yaml_reading.diagnostics import Mark

    class Event:
        """Any event of the parser."""

        start_mark: Mark

    class ScalarEvent(Event):
        """A scalar. `implicit[0]` is True for a plain one without a tag."""

        anchor: str | None
        tag: str | None
        implicit: tuple[bool, bool]
        value: str
        style: str | None

        def __init__(
            self, anchor: str | None, tag: str | None, implicit: tuple[bool, bool], value: str, *, start_mark: Mark
        ) -> None: ...

    class AliasEvent(Event):
        """An alias, `*name`."""

        anchor: str

    class CollectionStartEvent(Event):
        """The start of a mapping or a sequence."""

        anchor: str | None
        tag: str | None
        flow_style: bool

    class MappingStartEvent(CollectionStartEvent):
        """The start of a mapping."""

    class SequenceStartEvent(CollectionStartEvent):
        """The start of a sequence."""

    class DocumentStartEvent(Event):
        """The start of a document."""

    class YamlParser:
        """Parses a stream of bytes into events."""

        def __init__(self, stream: object) -> None: ...

        def get_event(self) -> Any:  # noqa: ANN401  any of the events
            """Return the next event and advance."""

        def peek_event(self) -> Any:  # noqa: ANN401  any of the events
            """Return the next event without advancing."""

else:
    from yaml.events import (  # noqa: F401  the other modules import them from here, with these types
        AliasEvent,
        DocumentStartEvent,
        MappingStartEvent,
        ScalarEvent,
        SequenceStartEvent,
    )

    try:
        from yaml.cyaml import CParser as YamlParser
    except ImportError:  # PyYAML was built without its C parser; its Python parser is slower and gives the same events
        from yaml.parser import Parser
        from yaml.reader import Reader
        from yaml.scanner import Scanner

        class YamlParser(Reader, Scanner, Parser):
            """PyYAML's parser without the steps that build objects."""

            def __init__(self, stream: BinaryIO) -> None:
                Reader.__init__(self, stream)
                Scanner.__init__(self)
                Parser.__init__(self)


TYPE_NAMES: Final = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}
_MAX_NUMBER_LENGTH: Final = 40  # longer digits are text: no field has such a number, and `int` has a limit of its own
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
    """Return the value of a plain scalar by the core schema of YAML 1.2.

    Null, true, false and numbers have their values; anything else is text. Unlike in YAML 1.1, `no`, `on`, `16:9`,
    `1_000` and `2020-01-01` are text. https://yaml.org/spec/1.2.2/#103-core-schema
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789" or len(text) > _MAX_NUMBER_LENGTH:
        return text
    if _INT.fullmatch(text):
        return int(text, 8) if text.startswith("0o") else int(text, 16) if text.startswith("0x") else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
