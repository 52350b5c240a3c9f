"""Values with fields that are never shown."""

from typing import ClassVar

from msgspec import Struct


class Redacted(Struct, frozen=True):
    """A value whose `hidden` fields are left out of its text, also in tracebacks: they may be secret (Law 8)."""

    hidden: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """Return the fields that rich shows."""
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name not in self.hidden]
