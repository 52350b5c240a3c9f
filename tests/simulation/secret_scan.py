"""What must never be written down: each API key and each signature that goes over the wire is a canary (Law 8)."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_SECRETS: Final = (
    (b"signature=", re.compile(rb"signature=([0-9a-f]{64})")),
    (b"Bearer ", re.compile(rb"Bearer (\S+)")),
)
_KEPT_BY_A_PERSON: Final = {"new-key"}  # where the world's person keeps a key for the program to read


class Canaries:
    """Listens to the wire, and later searches what was left behind."""

    def __init__(self) -> None:
        """Know none yet."""
        self.secrets: set[bytes] = set()

    def see(self, node: str, content: bytes) -> None:
        """Learn the secrets in what a node is about to write."""
        del node
        for sign, secrets in _SECRETS:
            if sign in content:
                self.secrets.update(secrets.findall(content))

    def left_in(self, folders: Iterable[Path]) -> Iterator[str]:
        """Tell of each file that holds a secret."""
        for folder in folders:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.name not in _KEPT_BY_A_PERSON and self.told_by(path.read_bytes()):
                    yield f"{path.relative_to(folder.parent)} holds an API key or a signature"

    def told_by(self, content: bytes) -> bool:
        """Say whether a text tells a secret."""
        return any(secret in content for secret in self.secrets)
