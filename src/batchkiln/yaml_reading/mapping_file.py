"""Reads a small YAML file, a configuration, as one mapping with the place of each value."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml

from batchkiln.core.errors import InputError
from batchkiln.yaml_reading.diagnostics import Diagnostics, Mark, Unreadable
from batchkiln.yaml_reading.yaml_errors import encoding_error, report_syntax
from batchkiln.yaml_reading.yaml_parser import resolve
from batchkiln.yaml_reading.yaml_tree import (
    CONFIGURATION,
    EntryTooLarge,
    MapNode,
    Node,
    SeqNode,
    TreeReader,
    plain_value,
)


class MappingFile:
    """The mapping in a file. An empty file is an empty mapping."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raise `OSError`, or `InputError` with every syntax error and repeated field."""
        self.diagnostics = Diagnostics(str(path), path)
        if (reason := encoding_error(path)) is not None:
            self.diagnostics.at_line(1, reason, "save the file as UTF-8")
            raise self.diagnostics.error()
        self._start: Mark | None = None
        self._pairs: dict[str, tuple[Any, Node]] = {}
        try:
            self._read(TreeReader(BytesIO(path.read_bytes()), self.diagnostics, CONFIGURATION))
        except yaml.YAMLError as error:
            report_syntax(error, path, self.diagnostics)
        except EntryTooLarge:
            self.diagnostics.at_line(None, "the file is too large for a configuration")
        except Unreadable:
            pass
        if self.diagnostics:
            raise self.diagnostics.error()

    def _read(self, tree: TreeReader) -> None:
        root = tree.open_root()
        if root is None:
            return
        self._start = root.start_mark
        for key in tree.root_keys():
            self._pairs[key.value] = key, tree.value()
        tree.close_document()

    @property
    def values(self) -> dict[str, Any]:
        """The mapping with the values of YAML 1.2: texts, numbers, true, false and null."""
        return {name: plain_value(value) for name, (_, value) in self._pairs.items()}

    @property
    def texts(self) -> dict[str, Any]:
        """The mapping with each scalar as it is written, for fields whose types convert texts. A null is None."""
        return {name: _text_of(value) for name, (_, value) in self._pairs.items()}

    def place(self, location: Sequence[str | int], *, is_key: bool = False) -> tuple[int, int] | None:
        """Return line and column, from 1, of the deepest part of a location that is in the file; None without any.

        The place of a field is its value's, or its name's if `is_key`, because the name itself is the mistake.
        """
        mark, node = self._start, None
        pairs: dict[str, tuple[Any, Node]] = self._pairs
        for part in location:
            if node is not None:
                pairs = node.pairs if isinstance(node, MapNode) else {}
            if isinstance(node, SeqNode) and isinstance(part, int) and part < len(node.items):
                key, node = None, node.items[part]
            elif part in pairs:
                key, node = pairs[str(part)]
            else:
                break
            mark = key.start_mark if is_key and key is not None else node.start_mark
        return None if mark is None else (mark.line + 1, mark.column + 1)


def _text_of(node: Node) -> Any:  # noqa: ANN401  JSON has no narrower type
    if isinstance(node, MapNode):
        return {name: _text_of(value) for name, (_, value) in node.pairs.items()}
    if isinstance(node, SeqNode):
        return [_text_of(item) for item in node.items]
    return None if node.implicit[0] and resolve(node.value) is None else node.value


def read_mapping(path: Path, what: str) -> MappingFile:
    """Read a mapping; `what` names it in errors, as in "the queue". Raise `InputError`, also for an unreadable file."""
    try:
        return MappingFile(path)
    except OSError as error:
        raise InputError(f"{path}: {what} cannot be read: {error.strerror or error}") from error
