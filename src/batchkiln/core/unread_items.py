"""What is known of a manifest's invalid items, so that their other mistakes are reported at the same time."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field

from batchkiln.core.catalog_checks import PlacedObjection
from batchkiln.core.errors import InputError

MAX_KEPT: Final = 1_000


class UnreadItems(Struct):
    """The ids of invalid items, each with its file and line, and the objections of the service's catalogue to them.

    `has_unnamed` tells that there may be more items, whose ids are not known. At most 1,000 ids and objections are
    kept.
    """

    names: dict[str, tuple[str, int]] = field(default_factory=dict)
    objections: dict[PlacedObjection, None] = field(default_factory=dict)
    has_unnamed: bool = False

    def keep_name(self, name: str, file: str, line: int) -> None:
        """Keep the id of an invalid item."""
        if len(self.names) < MAX_KEPT:
            self.names.setdefault(name, (file, line))
        else:
            self.has_unnamed = True

    def keep_objections(self, objections: Sequence[PlacedObjection]) -> None:
        """Keep objections to an invalid item."""
        if len(self.objections) < MAX_KEPT:
            self.objections.update(dict.fromkeys(objections))


class ItemsInvalid(InputError):
    """The mistakes that reading a manifest has found. `unread` is what is known of its invalid items."""

    def __init__(self, error: InputError, unread: UnreadItems) -> None:
        """Initialize with the mistakes of another error."""
        super().__init__(error.mistakes, omitted=error.omitted, is_partial=error.is_partial)
        self.unread = unread
