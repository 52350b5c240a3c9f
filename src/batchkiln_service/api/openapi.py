"""The interface description at GET /openapi.json: the checked-in `openapi.json` (OpenAPI 3.1).

Tests compare the file with the routes, with the models that check requests and make replies, and with the errors that
the source raises. Its server URL is relative, so that the document is the same wherever it is read.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson
from msgspec import Struct

FILE: Final = Path(__file__).parents[1] / "openapi.json"


class Operation(Struct, frozen=True):
    """One operation of the document: its HTTP method in lower case, its path template, and its description."""

    method: str
    path: str
    described: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The operation's `operationId`."""
        return str(self.described["operationId"])

    @property
    def success(self) -> tuple[int, Mapping[str, Any]]:
        """The status and the description of the successful response."""
        (found,) = ((int(status), reply) for status, reply in self.described["responses"].items() if status < "400")
        return found

    @property
    def errors(self) -> dict[int, tuple[str, ...]]:
        """The error codes of the operation, by HTTP status."""
        return {
            int(status): tuple(reply["content"]["application/json"]["examples"])
            for status, reply in self.described["responses"].items()
            if status >= "400"
        }


@cache
def description() -> bytes:
    """Return the document as it is sent: without the file's whitespace."""
    return orjson.dumps(document())


@cache
def document() -> Any:  # noqa: ANN401 - a document of JSON
    """Return the parsed document. It is shared: do not change it."""
    return orjson.loads(FILE.read_bytes())


def operations() -> Iterator[Operation]:
    """Yield the operations in the document's order."""
    for path, methods in document()["paths"].items():
        for method, described in methods.items():
            yield Operation(method, path, described)
