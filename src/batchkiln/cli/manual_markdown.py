"""The manual's Markdown on a terminal."""

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown, MarkdownElement
from rich.segment import Segment


class _CopiableCode(CodeBlock):
    """A block of code as it is written, so that it can be copied: rich would break lines, and fill them with spaces."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del options
        style = console.get_style(self.style_name)
        for line in self.text.plain.rstrip().split("\n"):
            yield Segment(line, style)  # not a text, whose tabs rich would replace by spaces
            yield Segment.line()


class ManualMarkdown(Markdown):
    """Markdown whose prose is wrapped between words, and whose code is not."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": _CopiableCode,
        "code_block": _CopiableCode,
    }

    def print_to(self, console: Console) -> None:
        """Print to a console. Rich would cut the lines of code at its width."""
        console.print(self, soft_wrap=False, crop=False)
