"""A client that keeps its last reply, so that `doctor` can explain how replies are read."""

import math
from collections.abc import Iterator, Mapping
from typing import Final

from batchkiln.client.client import ServiceClient
from batchkiln.client.http_response import NOT_JSON, RawReply
from batchkiln.client.json_tree import as_jmespath, normalize_name, walk
from batchkiln.client.redact import describe_shape, field_types
from batchkiln.core.responses import Described, DescribeReply, NoResponse

_TEXT_MAX_CHARACTERS: Final = 4096


class ObservingClient(ServiceClient):
    """A `ServiceClient` that keeps its last reply. Only names and types of the reply are returned (Law 8)."""

    _last: RawReply | NoResponse | None = None
    description: Mapping[str, object] | None = None  # of the service, as it was read last

    def _on_reply(self, reply: RawReply | NoResponse) -> None:
        self._last = reply

    async def describe(self) -> DescribeReply:
        """Read the service's OpenAPI document, and keep it as `description`."""
        reply = await super().describe()
        if isinstance(reply, Described):
            self.description = reply.document
        return reply

    @property
    def last_status(self) -> int | None:
        """The status of the last reply; None if there was none."""
        return self._last.status if isinstance(self._last, RawReply) else None

    def describe_last(self) -> str:
        """Return the last reply's status, and the names and types of its body."""
        if not isinstance(self._last, RawReply):
            return "no reply"
        document = self._last.document()
        if document is NOT_JSON:
            return f"{self._last.status}, no JSON"
        return f"{self._last.status} {describe_shape(document)}"

    def last_types(self) -> dict[str, str]:
        """Return the last reply's types by path; empty unless it was a successful JSON reply."""
        if not isinstance(self._last, RawReply) or not self._last.is_success:
            return {}
        document = self._last.document()
        return {} if document is NOT_JSON else field_types(document)

    def path_of(self, value: str | float, *names: str) -> str | None:
        """Return the JMESPath of a value in the last reply, preferably of a field with one of `names`."""
        if not isinstance(self._last, RawReply):
            return None
        wanted = {normalize_name(name) for name in names}
        nodes = list(_matching_paths(self._last.document(), str(value)))
        named = next((path for name, path in nodes if name in wanted), None)
        return named or next((path for _, path in nodes), None)

    def other_paths(self, value: str, *, are_links: bool) -> list[str]:
        """Return the JMESPaths of the last reply's other values: all links, or all short texts that are not links."""
        if not isinstance(self._last, RawReply):
            return []
        own = self.path_of(value)
        found = [
            as_jmespath(node.path)
            for node in walk(self._last.document())
            if isinstance(node.value, str | int)
            and not isinstance(node.value, bool)
            and len(str(node.value)) <= _TEXT_MAX_CHARACTERS
            and ("://" in str(node.value)) == are_links
        ]
        return [path for path in dict.fromkeys(found) if path != own]


def _matching_paths(document: object, value: str) -> Iterator[tuple[str, str]]:
    for node in walk(document):
        key = node.path[-1] if node.path else None
        if isinstance(node.value, str | int | float) and value in _texts(node.value):
            yield node.name, as_jmespath(node.path)
        elif key == value:
            yield "", f"keys({as_jmespath(node.path[:-1])})"


def _texts(value: str | float) -> set[str]:
    """Return the texts that would be read as a value; a fraction of credits may be rounded up or down."""
    if isinstance(value, float) and math.isfinite(value):
        return {str(math.floor(value)), str(math.ceil(value))}
    return {str(value)}
