"""Items in commands that a person is told to type, such that a shell and the command take them as they stand."""

import shlex


def item_arguments(job: str, item: str) -> str:
    """Return the last arguments of a command about an item; options stand before them.

    Behind `--` nothing is an option, whatever job and item are called.
    """
    return f"{'-- ' if job.startswith('-') or item.startswith('-') else ''}{job} {shlex.quote(item)}"
