"""A rich console for untrusted text."""

import sys
from collections.abc import Iterable
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from batchkiln.cli.output import columns_of_output, is_dumb_terminal, is_terminal, line_breaks, printable

_UNUSED_HEIGHT: Final = 25


class SafeConsole(Console):
    """A console for untrusted text: without markup, highlighting, emoji and control characters."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  rich's own
        """Initialize with rich's settings."""
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401  rich's own
        """Print; on a terminal, text is wrapped between words (see `line_breaks`)."""
        if self.is_terminal:
            objects = tuple(_wrapped(each, self.width) for each in objects)
        super().print(*objects, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with rich, without control characters: in texts, before they are wrapped, and in each segment."""
        if isinstance(renderable, str | Text):
            renderable = printable_text(renderable)
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def printable_text(printed: str | Text) -> Text:
    """Return a text without control characters. Rich gives some of them no width; the space in their place has one."""
    text = Text(printed) if isinstance(printed, str) else printed.copy()
    text.plain = printable(text.plain)
    return text


def _wrapped(printed: Any, width: int) -> Any:  # noqa: ANN401  what rich prints
    """Return a text with line breaks between words. Anything else is returned as it is."""
    if not isinstance(printed, str | Text):
        return printed
    text = printable_text(printed)
    indent = len(text.plain) - len(text.plain.lstrip(" "))  # a continuation begins below its line
    lines = text.divide(line_breaks(text.plain, width, cell_len, hanging=indent))
    for line in lines[:-1]:
        line.rstrip()
    return Text(f"\n{' ' * indent}").join(lines)


def console() -> Console:
    """Return a console on standard output.

    Rich takes each dumb terminal for one of 80 columns unless it has a height too, and would ask the terminals of the
    other streams for the width of a pipe.
    """
    if is_terminal(sys.stdout) and not is_dumb_terminal():
        return SafeConsole(soft_wrap=True)
    return SafeConsole(soft_wrap=True, width=columns_of_output(), height=_UNUSED_HEIGHT)
