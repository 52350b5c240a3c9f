#!/usr/bin/env python3
"""Print the libraries that the program needs, one a line: `python libraries.py [EXTRA,EXTRA…]`.

Images install them in a layer of their own, before the source. It is built again when the list changes.
"""

import sys
import tomllib
from pathlib import Path


def libraries(extras: str) -> list[str]:
    """Return the requirements of pyproject.toml beside this file, with those of extras that commas separate."""
    project = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text("utf-8"))["project"]
    names = [name for name in extras.split(",") if name]
    return [*project["dependencies"], *(line for name in names for line in project["optional-dependencies"][name])]


if __name__ == "__main__":
    sys.stdout.write("\n".join([*libraries("".join(sys.argv[1:2])), ""]))
