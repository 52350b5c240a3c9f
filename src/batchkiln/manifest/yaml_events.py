"""PyYAML's events and parser, with the types that they have in a parsed text (its stubs allow None everywhere)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass

    from batchkiln.manifest.diagnostics import Mark

    class Event:
        """Anything that the parser tells."""

        start_mark: Mark

    class ScalarEvent(Event):
        """A text; `implicit[0]` is true for a plain one without a tag."""

        anchor: str | None
        tag: str | None
        implicit: tuple[bool, bool]
        value: str
        style: str | None

        def __init__(
            self, anchor: str | None, tag: str | None, implicit: tuple[bool, bool], value: str, *, start_mark: Mark
        ) -> None: ...

    class AliasEvent(Event):
        """A name of something above."""

        anchor: str

    @dataclass
    class _Start(Event):
        anchor: str | None
        tag: str | None
        flow_style: bool

    class MappingStartEvent(_Start):
        """The beginning of a mapping."""

    class SequenceStartEvent(_Start):
        """The beginning of a sequence."""

    class MappingEndEvent(Event):
        """The end of a mapping."""

    class SequenceEndEvent(Event):
        """The end of a sequence."""

    class DocumentStartEvent(Event):
        """The beginning of a document."""

    class DocumentEndEvent(Event):
        """The end of a document."""

    class StreamEndEvent(Event):
        """The end of the text."""

    class YamlParser:
        """Gives the events of the bytes of a stream."""

        def __init__(self, stream: object) -> None: ...

        def get_event(self) -> Any:  # noqa: ANN401  one of the above
            """Take the next event."""

        def peek_event(self) -> Any:  # noqa: ANN401  one of the above
            """Look at the next event."""

else:
    from yaml.events import (
        AliasEvent,
        DocumentEndEvent,
        DocumentStartEvent,
        MappingEndEvent,
        MappingStartEvent,
        ScalarEvent,
        SequenceEndEvent,
        SequenceStartEvent,
        StreamEndEvent,
    )

    try:
        from yaml.cyaml import CParser as YamlParser
    except ImportError:
        from batchkiln.manifest._pure import PureParser as YamlParser

__all__ = [
    "AliasEvent",
    "DocumentEndEvent",
    "DocumentStartEvent",
    "MappingEndEvent",
    "MappingStartEvent",
    "ScalarEvent",
    "SequenceEndEvent",
    "SequenceStartEvent",
    "StreamEndEvent",
    "YamlParser",
]
