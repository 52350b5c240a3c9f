"""What is known beforehand of a service's replies: configured paths and meanings, and what its description says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import jmespath
from jmespath.exceptions import JMESPathError

from batchkiln.core.response_rules import RefusalMeaning, ReplyField, ReplyRules

_FAULTS: Final = (JMESPathError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Hints:
    """Where the service's own description says that a field stands.

    A hint is the squashed names down to the field, without lists, and `*` where a map is keyed by anything; a last
    `*` means the key itself.
    """

    asset_id: tuple[str, ...] = ()
    balance: tuple[str, ...] = ()


@dataclass(slots=True)
class Guide:
    """Rules of a person, which are believed; hints of the service, which come before our own reading.

    The hints are replaced as a whole when the service has described itself.
    """

    rules: ReplyRules = field(default_factory=ReplyRules)
    hints: Hints = field(default_factory=Hints)

    def has(self, name: ReplyField) -> bool:
        """Whether a person has said where the field stands."""
        return name in self.rules.fields

    def find(self, name: ReplyField, document: object) -> object:
        """Return what stands at the configured path, of a list with one entry that entry; None for nothing."""
        found = self._at(name, document)
        return found[0] if isinstance(found, list) and len(found) == 1 else found

    def values(self, name: ReplyField, document: object) -> list[object]:
        """Return what stands there as a list: one value per file, asset or output."""
        found = self._at(name, document)
        if isinstance(found, Mapping) and name is not ReplyField.UPLOAD_HEADERS:
            return list(found.values())
        return found if isinstance(found, list) else [] if found is None else [found]

    def _at(self, name: ReplyField, document: object) -> object:
        path = self.rules.fields.get(name)
        return None if path is None else search(path, document)

    def meaning(self, status: int, code: str, message: str) -> RefusalMeaning | None:
        """Return what a person says of such a refusal; the first rule that fits counts."""
        fitting = (rule.means for rule in self.rules.refusals if rule.fits(status, code, message))
        return next(fitting, None)


UNGUIDED: Final = Guide()


def search(path: str, document: object) -> object:
    """Return what a JMESPath finds in a document, None for nothing; never raises."""
    try:
        found: object = _compiled(path).search(document)
    except _FAULTS:
        return None
    return found


@lru_cache(maxsize=256)
def _compiled(path: str) -> Any:  # noqa: ANN401  the library is not typed
    return jmespath.compile(path)
