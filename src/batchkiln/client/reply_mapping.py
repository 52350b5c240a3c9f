"""Finds fields in one service's replies by the user's rules and by hints from the service's OpenAPI document."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import jmespath
from jmespath.exceptions import JMESPathError
from msgspec import Struct, field

from batchkiln.core.response_rules import RefusalMeaning, ReplyField, ReplyRules

_FAULTS: Final = (JMESPathError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class FieldHints(Struct, frozen=True):
    """Paths of fields according to the service's OpenAPI document; empty for fields that it does not describe.

    A path is the normalized names down to the field, without lists. `*` stands for any key of a map; as the last step
    it means the key itself.
    """

    asset_id: tuple[str, ...] = ()
    balance: tuple[str, ...] = ()


class ReplyMapping(Struct):
    """The user's rules, which are authoritative, and the OpenAPI hints, which are tried before guessing.

    `hints` is replaced as a whole when the service's OpenAPI document has been read.
    """

    rules: ReplyRules = ReplyRules()
    hints: FieldHints = field(default_factory=FieldHints)

    def has(self, name: ReplyField) -> bool:
        """Return whether the user has configured the field's path."""
        return name in self.rules.fields

    def find(self, name: ReplyField, document: object) -> object:
        """Return the value at the configured path, or None; a list of one entry is returned as that entry."""
        found = self._at(name, document)
        return found[0] if isinstance(found, list) and len(found) == 1 else found

    def values(self, name: ReplyField, document: object) -> list[object]:
        """Return the values at the configured path as a list: one per file, asset or output."""
        found = self._at(name, document)
        if isinstance(found, Mapping) and name is not ReplyField.UPLOAD_HEADERS:
            return list(found.values())
        return found if isinstance(found, list) else [] if found is None else [found]

    def _at(self, name: ReplyField, document: object) -> object:
        path = self.rules.fields.get(name)
        return None if path is None else search_path(path, document)

    def meaning(self, status: int, code: str, message: str) -> RefusalMeaning | None:
        """Return the configured meaning of a refusal, by the first rule that matches; None if none does."""
        fitting = (rule.means for rule in self.rules.refusals if rule.fits(status, code, message))
        return next(fitting, None)


NO_MAPPING: Final = ReplyMapping()


def search_path(path: str, document: object) -> object:
    """Return the value that a JMESPath finds in a document; None if it finds none. Never raises."""
    try:
        found: object = _compiled(path).search(document)
    except _FAULTS:
        return None
    return found


@lru_cache(maxsize=256)
def _compiled(path: str) -> Any:  # noqa: ANN401  the library is not typed
    return jmespath.compile(path)
