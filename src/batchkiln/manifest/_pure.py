"""PyYAML's own parser, for where its C parser was not built: slower, and with the same events."""

from typing import BinaryIO

from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner


class PureParser(Reader, Scanner, Parser):
    """The three parts of a loader that make events of bytes."""

    def __init__(self, stream: BinaryIO) -> None:
        Reader.__init__(self, stream)
        Scanner.__init__(self)
        Parser.__init__(self)
