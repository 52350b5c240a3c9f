"""A client that keeps its last reply as it came, for who explains how the service's replies are read."""

import math
from collections.abc import Iterator, Mapping
from typing import Final

from batchkiln.client.client import REPLY_MAX_BYTES, ServiceClient
from batchkiln.client.http_response import NOT_JSON, RawReply
from batchkiln.client.json_tree import as_jmespath, squash, walk
from batchkiln.client.shape import describe_shape, field_types
from batchkiln.core.responses import Described, DescribeReply, NoResponse

_TEXT_MAX_CHARACTERS: Final = 4096


class ObservingClient(ServiceClient):
    """Sends as `ServiceClient` does. What it keeps is told by names and types only (Law 8)."""

    _last: RawReply | NoResponse | None = None
    description: Mapping[str, object] | None = None  # of the service, as it was read last

    async def _call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        max_bytes: int = REPLY_MAX_BYTES,
    ) -> RawReply | NoResponse:
        self._last = await super()._call(method, path, headers=headers, body=body, max_bytes=max_bytes)
        return self._last

    async def describe(self) -> DescribeReply:
        """Read the service's description, and keep it."""
        reply = await super().describe()
        if isinstance(reply, Described):
            self.description = reply.document
        return reply

    @property
    def last_status(self) -> int | None:
        """The status of the last reply; None where none came."""
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
        """Return the names and types of the last reply by place; empty where it is no successful JSON reply."""
        if not isinstance(self._last, RawReply) or not self._last.is_success:
            return {}
        document = self._last.document()
        return {} if document is NOT_JSON else field_types(document)

    def place_of(self, value: str | float, *names: str) -> str | None:
        """Return where the last reply has a value, as a JMESPath; of several places one of these names first."""
        if not isinstance(self._last, RawReply):
            return None
        wanted = {squash(name) for name in names}
        places = list(_places(self._last.document(), str(value)))
        named = next((path for name, path in places if name in wanted), None)
        return named or next((path for _, path in places), None)

    def other_places(self, value: str, *, are_links: bool) -> list[str]:
        """Return where else a value of the kind could stand in the last reply: each link, or each other short text."""
        if not isinstance(self._last, RawReply):
            return []
        own = self.place_of(value)
        found = [
            as_jmespath(place.path)
            for place in walk(self._last.document())
            if isinstance(place.value, str | int)
            and not isinstance(place.value, bool)
            and len(str(place.value)) <= _TEXT_MAX_CHARACTERS
            and ("://" in str(place.value)) == are_links
        ]
        return [path for path in dict.fromkeys(found) if path != own]


def _places(document: object, value: str) -> Iterator[tuple[str, str]]:
    for place in walk(document):
        key = place.path[-1] if place.path else None
        if isinstance(place.value, str | int | float) and value in _texts(place.value):
            yield place.name, as_jmespath(place.path)
        elif key == value:
            yield "", f"keys({as_jmespath(place.path[:-1])})"


def _texts(value: str | float) -> set[str]:
    """Return what a value may be read as: a fraction of credits is rounded."""
    if isinstance(value, float) and math.isfinite(value):
        return {str(math.floor(value)), str(math.ceil(value))}
    return {str(value)}
