"""What docs/guides/containers.md says of one container."""

import re
import shlex
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
GUIDE: Final = (ROOT / "docs" / "guides" / "containers.md").read_text("utf-8")


def docker_run() -> list[str]:
    """Return the words after `docker run --detach` in the guide's one complete command."""
    (text,) = re.findall(r"^docker run --detach (.*?[^\\])\n", GUIDE, re.DOTALL | re.MULTILINE)
    return shlex.split(text.replace("\\\n", " "))


def configuration() -> str:
    """Return the guide's configuration."""
    (text,) = re.findall(r"data/batchkiln\.yaml -->\n```yaml\n(.*?)```", GUIDE, re.DOTALL)
    return str(text)
