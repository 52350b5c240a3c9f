"""Values that keep some of their fields out of every text (Law 8)."""

import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import ClassVar

import pytest
from rich.pretty import pretty_repr

import batchkiln
from batchkiln.core.redacted import Redacted

SECRET = "canary-1f3a"


class Ticket(Redacted, frozen=True):
    """A number that may be shown, and a secret."""

    hidden: ClassVar = frozenset({"secret"})

    number: int
    secret: str


@pytest.mark.parametrize("text", [str, repr, pretty_repr, "{}".format, "{!r}".format])
def test_hidden_fields_are_in_no_text(text: Callable[[object], str]) -> None:
    """Rich asks a struct in another way than Python does."""
    assert "".join(text(Ticket(4, SECRET)).split()) == "Ticket(number=4)"


def test_a_traceback_with_values_tells_none() -> None:
    """Frames are printed with the text of their variables."""
    kept = Ticket(4, SECRET)
    with pytest.raises(KeyError) as caught:
        dict[Ticket, int]()[kept]

    told = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "Ticket(number=4)" in told
    assert SECRET not in told


def test_what_is_hidden_is_a_field() -> None:
    """A name that is misspelt would hide nothing."""
    source = Path(batchkiln.__file__).parents[1]
    for path in Path(batchkiln.__file__).parent.rglob("*.py"):
        if "(Redacted" in path.read_text("utf-8"):
            import_module(".".join(path.relative_to(source).with_suffix("").parts))
    kinds = [kind for kind in Redacted.__subclasses__() if kind.__module__.startswith("batchkiln.")]

    assert {"OutputLink", "UploadTicket", "RawReply", "HttpToken", "DatabaseUrl"} <= {kind.__name__ for kind in kinds}
    assert [kind for kind in kinds if kind.__subclasses__()] == []  # else they are to be looked at, too
    assert [kind for kind in kinds if not kind.hidden or not kind.hidden <= set(kind.__struct_fields__)] == []
