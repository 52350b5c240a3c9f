"""Make the golden file of the current schema version, by driving the program itself.

    python tests/golden/make.py

Run it after adding a migration, and commit the two files that it writes. The files of older versions are what
older programs really wrote: they are never made again.
"""

import argparse
import asyncio
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from batchkiln.store.sqlite.file_session import SCHEMA_VERSION
from golden.files import dump, queue_file, surroundings_file, surroundings_of
from golden.queue_history import told


def main() -> int:
    """Write the files, or show with --check whether they would change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a file would change")
    args = parser.parse_args()
    with contextlib.redirect_stdout(io.StringIO()):  # log lines
        made = asyncio.run(make())
    changed = [path for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in changed:
        print(path)
        if not args.check:
            path.write_text(made[path], "utf-8")
    return int(args.check and bool(changed))


async def make() -> dict[Path, str]:
    """Return the texts of the current version's two files. Those of another version cannot be made."""
    with tempfile.TemporaryDirectory() as name:
        world = await told(Path(name))
        environment = json.dumps(surroundings_of(world), indent=1, ensure_ascii=False) + "\n"
        return {queue_file(SCHEMA_VERSION): dump(world.path), surroundings_file(SCHEMA_VERSION): environment}


if __name__ == "__main__":
    sys.exit(main())
