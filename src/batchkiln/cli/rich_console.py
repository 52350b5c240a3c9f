"""A rich console for untrusted text."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from batchkiln.cli.output import printable


class SafeConsole(Console):
    """A console for untrusted text: without markup, highlighting, emoji and control characters."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  rich's own
        """Initialize with rich's settings."""
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with rich, and remove control characters from each segment of text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def console() -> Console:
    """Return a console on standard output."""
    return SafeConsole(soft_wrap=True)
