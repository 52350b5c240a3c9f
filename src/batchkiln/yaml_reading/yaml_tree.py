"""Builds small trees with positions from YAML events; the whole document is never in memory.

The parser's events are the scalars of a tree. Aliases share the tree that they name, so they cost no memory. Their
expanded sizes are limited nevertheless, because a tree is walked once for each alias.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NoReturn

from msgspec import Struct
from yaml.events import DocumentEndEvent, MappingEndEvent, SequenceEndEvent, StreamEndEvent

from batchkiln.yaml_reading.diagnostics import Diagnostics, Mark, Unreadable
from batchkiln.yaml_reading.yaml_parser import (
    AliasEvent,
    DocumentStartEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
    Value,
    YamlParser,
    resolve,
)

MAX_DEPTH: Final = 32
MAX_SCALAR_LENGTH: Final = 1 << 20
MAX_ENTRY_SIZE_BYTES: Final = 64 << 20
MAX_NODES_PER_ENTRY: Final = 100_000
MAX_ALIASED_NODES: Final = 20_000_000  # in the whole manifest: a million items may each name a small tree
MAX_ALIASED_LENGTH: Final = 16 << 20  # characters that aliases add to one entry
MAX_ANCHORS: Final = 10_000
MAX_ANCHORED_NODES: Final = 1_000_000

_CORE_TAGS: Final = {
    f"tag:yaml.org,2002:{name}": types
    for name, types in {
        "str": (str,),
        "int": (int,),
        "float": (float, int),
        "bool": (bool,),
        "null": (type(None),),
        "map": (dict,),
        "seq": (list,),
    }.items()
}


class MapNode(Struct):
    """A mapping. `pairs` has each key's event and value by the key's text, in the order of the text."""

    start_mark: Mark
    pairs: "dict[str, tuple[ScalarEvent, Node]]"


class SeqNode(Struct):
    """A sequence."""

    start_mark: Mark
    items: "list[Node]"


class RenderedScalar(Struct):
    """A scalar that a template has rendered. Its value is resolved like that of a plain scalar."""

    start_mark: Mark
    value: str
    tag: None = None
    implicit: tuple[bool, bool] = (True, False)


Node = ScalarEvent | RenderedScalar | MapNode | SeqNode


def scalar_value(node: ScalarEvent | RenderedScalar) -> Value:
    """Return the value of a plain scalar, or the text of a quoted one."""
    return resolve(node.value) if node.implicit[0] or (node.tag is not None and node.tag[-3:] != "str") else node.value


def plain_value(node: Node) -> Any:  # noqa: ANN401  JSON has no narrower type
    """Return a tree as Python values."""
    if isinstance(node, MapNode):
        return {name: plain_value(value) for name, (_, value) in node.pairs.items()}
    if isinstance(node, SeqNode):
        return [plain_value(item) for item in node.items]
    return scalar_value(node)


class BoundedStream:
    """A stream of bytes for the parser that limits the size of one entry."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.entry_size_bytes = 0

    def read(self, size_bytes: int = 1 << 16) -> bytes:
        """Return the next bytes. Raise `EntryTooLarge`."""
        self.entry_size_bytes += size_bytes
        if self.entry_size_bytes > MAX_ENTRY_SIZE_BYTES:
            raise EntryTooLarge
        return self._stream.read(size_bytes)


class EntryTooLarge(Exception):
    """One entry, or one field of the header, has more text than allowed."""


class FileKind(Struct, frozen=True):
    """The parts of error messages that differ between the kinds of files."""

    noun: str
    beginning: str
    common_fields: str


MANIFEST: Final = FileKind(
    "manifest",
    "`version: 1`, then `job:` and `items:`",
    "put common fields into `defaults`, or use an alias for one field: `parameters: *name`",
)
CONFIGURATION: Final = FileKind(
    "configuration", "the name of a field and a colon", "use an alias for one field: `limits: *name`"
)


class TreeReader:
    """Reads one document. Every method may raise `Unreadable`, or `YAMLError` for invalid syntax."""

    def __init__(self, stream: BinaryIO, diagnostics: Diagnostics, kind: FileKind = MANIFEST) -> None:
        self._kind = kind
        self._stream = BoundedStream(stream)
        self._parser = YamlParser(self._stream)
        self._get = self._parser.get_event
        self.diagnostics = diagnostics
        self._anchors: dict[str, tuple[Node, int, int, int] | None] = {}
        self._anchored_nodes = self._aliased_nodes = self._nodes = self._aliased_length = 0

    def open_root(self) -> MappingStartEvent | None:
        """Read the start of the document's mapping and return it; None for an empty document."""
        self._get()
        event = self._get()
        if isinstance(event, StreamEndEvent):
            return None
        root = self._get()
        if isinstance(root, MappingStartEvent):
            if root.anchor is not None:
                self._anchors[root.anchor] = None
            self._check_tag(root, dict)
            return root
        mark = root.start_mark
        if isinstance(root, ScalarEvent) and not root.value and root.implicit[0]:
            return None
        self.diagnostics.at(mark, f"a {self._kind.noun} is a mapping of fields", f"begin with {self._kind.beginning}")
        raise Unreadable

    def root_keys(self) -> Iterator[ScalarEvent]:
        """Yield the root's keys. The caller reads each value, by `value` or `entries`, before the next key."""
        seen: set[str] = set()
        while not isinstance(event := self._get(), MappingEndEvent):
            key = self._key(event, seen)
            if key is None:
                self.value()
                continue
            seen.add(key.value)
            yield key

    def close_document(self) -> None:
        """Read the end of the document. Raise `Unreadable` if another document follows."""
        end = self._get()
        assert isinstance(end, DocumentEndEvent)
        event = self._get()
        if isinstance(event, DocumentStartEvent):
            self._fail(
                event.start_mark,
                "a second document begins here",
                f"a {self._kind.noun} is one document: remove the `---`",
            )

    def value(self) -> Node:
        """Read and return the next value."""
        self._begin_entry()
        return self._node(self._get(), 1)

    def peek(self) -> Any:  # noqa: ANN401  the parser's event
        """Return the next event without advancing."""
        return self._parser.peek_event()

    def entries(self) -> Iterator[Node]:
        """Yield the entries of the next value, a sequence, one at a time."""
        start = self._get()
        if not isinstance(start, SequenceStartEvent):
            self.diagnostics.at(start.start_mark, "`items` is a list", "begin each item with a hyphen: `- prompt: …`")
            self._node(start, 1)
            return
        if start.anchor is not None:
            self._anchors[start.anchor] = None
        self._check_tag(start, list)
        get, stream = self._get, self._stream
        while type(event := get()) is not SequenceEndEvent:
            stream.entry_size_bytes = self._nodes = self._aliased_length = 0
            yield self._node(event, 2)

    def _begin_entry(self) -> None:
        self._stream.entry_size_bytes = 0
        self._nodes = self._aliased_length = 0

    def _node(self, event: Any, depth: int) -> Node:  # noqa: ANN401  the parser's event
        if type(event) is MappingStartEvent and event.anchor is None and depth <= MAX_DEPTH:
            return self._mapping(event, depth)
        if isinstance(event, AliasEvent):
            return self._alias(event, depth)
        nodes_before = self._nodes
        anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        node: Node
        if isinstance(event, ScalarEvent):
            self._check_scalar(event)
            node = event
        elif depth > MAX_DEPTH:
            self._too_deep(event.start_mark)
        elif isinstance(event, MappingStartEvent):
            node = self._mapping(event, depth)
        else:
            node = self._sequence(event, depth)
        if anchor is not None:
            self._keep_anchor(event, node, self._nodes - nodes_before + 1)
        return node

    def _mapping(self, start: MappingStartEvent, depth: int) -> MapNode:
        self._check_tag(start, dict)
        pairs: dict[str, tuple[ScalarEvent, Node]] = {}
        get = self._get
        while True:
            event = get()
            if type(event) is MappingEndEvent:
                return MapNode(start.start_mark, pairs)
            if (
                type(event) is ScalarEvent
                and event.anchor is None
                and event.tag is None
                and event.value not in pairs
                and (event.value != "<<")
            ):
                key: ScalarEvent | None = event
            else:
                key = self._key(event, pairs)
            self._nodes += 1
            value = get()
            if (
                type(value) is not ScalarEvent
                or value.anchor is not None
                or value.tag is not None
                or len(value.value) > MAX_SCALAR_LENGTH
            ):
                value = self._node(value, depth + 1)
            if key is not None:
                pairs[key.value] = key, value
            if self._nodes > MAX_NODES_PER_ENTRY:
                self._too_many_nodes(start.start_mark)

    def _sequence(self, start: SequenceStartEvent, depth: int) -> SeqNode:
        self._check_tag(start, list)
        items: list[Node] = []
        while not isinstance(event := self._get(), SequenceEndEvent):
            self._nodes += 1
            items.append(self._node(event, depth + 1))
            if self._nodes > MAX_NODES_PER_ENTRY:
                self._too_many_nodes(start.start_mark)
        return SeqNode(start.start_mark, items)

    def _too_deep(self, mark: Mark) -> NoReturn:
        self._fail(
            mark, f"nested more than {MAX_DEPTH} levels deep", f"no field of a {self._kind.noun} is nested that deeply"
        )

    def _too_many_nodes(self, mark: Mark) -> NoReturn:
        self._fail(
            mark, f"one entry has more than {MAX_NODES_PER_ENTRY:,} values", "put the rows into a file for `from`"
        )

    def _key(self, event: Any, seen: "dict[str, Any] | set[str]") -> ScalarEvent | None:  # noqa: ANN401  the parser's event
        """Return a valid key. For an invalid one, add a diagnostic and return None: the caller skips the entry."""
        if not isinstance(event, ScalarEvent):
            self._node(event, 2)
            self.diagnostics.at(event.start_mark, "a key is a word, not a list, a mapping or an alias")
            return None
        if event.anchor is not None or event.tag is not None:
            self._check_scalar(event)
        if event.value == "<<" and event.implicit[0]:
            remedy = self._kind.common_fields
            self.diagnostics.at(event.start_mark, "merge keys (`<<`) are not supported", remedy)
            return None
        if event.value in seen:
            self.diagnostics.at(
                event.start_mark, f"the key `{event.value[:60]}` appears here a second time", "keep one of them"
            )
            return None
        return event

    def _alias(self, event: AliasEvent, depth: int) -> Node:
        if event.anchor not in self._anchors:
            remedy = f"write `&{event.anchor}` before the value that it should repeat"
            self._fail(event.start_mark, f"`*{event.anchor}` has no anchor `&{event.anchor}` above it", remedy)
        known = self._anchors[event.anchor]
        if known is None:
            self._fail(event.start_mark, f"`*{event.anchor}` is inside the value that it names", "write the value out")
        node, size, height, length = known
        self._nodes += size
        self._aliased_length += length
        self._aliased_nodes += size
        if depth + height > MAX_DEPTH + 1:
            self._too_deep(event.start_mark)
        if self._nodes > MAX_NODES_PER_ENTRY or self._aliased_nodes > MAX_ALIASED_NODES:
            limits = f"at most {MAX_NODES_PER_ENTRY:,} in one entry and {MAX_ALIASED_NODES:,} in the manifest"
            self._fail(event.start_mark, f"`*{event.anchor}` makes the aliases expand to too many values", limits)
        if self._aliased_length > MAX_ALIASED_LENGTH:
            limit = f"at most {MAX_ALIASED_LENGTH:,} characters in one entry"
            self._fail(event.start_mark, f"`*{event.anchor}` makes the aliases expand to too much text", limit)
        return node

    def _keep_anchor(self, event: Any, node: Node, size: int) -> None:  # noqa: ANN401  the parser's event
        self._anchored_nodes += size
        if len(self._anchors) > MAX_ANCHORS or self._anchored_nodes > MAX_ANCHORED_NODES:
            limits = f"at most {MAX_ANCHORS:,}, of {MAX_ANCHORED_NODES:,} values in all"
            self._fail(event.start_mark, "too many anchors", limits)
        self._anchors[event.anchor] = node, size, _height(node), _length(node)

    def _check_scalar(self, event: ScalarEvent) -> None:
        if len(event.value) > MAX_SCALAR_LENGTH:
            self._fail(
                event.start_mark,
                f"a text of {len(event.value):,} characters; a {self._kind.noun} allows at most {MAX_SCALAR_LENGTH:,}",
                "shorten it; a prompt has at most 20,000",
            )
        if event.tag is not None:
            self._check_tag(event, type(scalar_value(event)))

    def _check_tag(self, event: Any, found: type) -> None:  # noqa: ANN401  the parser's event
        if event.tag is None:
            return
        expected = _CORE_TAGS.get(event.tag)
        if expected is None:
            self.diagnostics.at(event.start_mark, f"the tag `{event.tag[:60]}` is not supported", "remove it")
        elif found not in expected:
            self.diagnostics.at(
                event.start_mark, f"the value does not fit its tag `!!{event.tag[18:]}`", "remove the tag"
            )

    def _fail(self, mark: Mark, reason: str, remedy: str) -> NoReturn:
        self.diagnostics.at(mark, reason, remedy)
        raise Unreadable


def _height(node: Node) -> int:
    if isinstance(node, MapNode):
        return 1 + max((_height(value) for _, value in node.pairs.values()), default=0)
    if isinstance(node, SeqNode):
        return 1 + max(map(_height, node.items), default=0)
    return 0


def _length(node: Node) -> int:
    """Return the number of characters of a tree, counting each alias in full."""
    if isinstance(node, MapNode):
        return sum(len(name) + _length(value) for name, (_, value) in node.pairs.items())
    if isinstance(node, SeqNode):
        return sum(map(_length, node.items))
    return len(node.value)
