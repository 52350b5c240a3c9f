"""batchkiln: a manifest of many prompts becomes images and videos on disk, each paid for once.

`open_queue` is the entry of a program; see docs/python.md. The names are those of `batchkiln.api.public`, which is
imported on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchkiln.api.public import *  # noqa: F403  its `__all__` is the public interface

    __version__: str


def __getattr__(name: str) -> Any:  # noqa: ANN401  whatever the name stands for; type checkers read the import above
    """Import a name on first use: the look-up of the version alone costs more than many a command."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  see above

        return version("batchkiln")
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from batchkiln.api import public  # noqa: PLC0415  likewise

    if name == "__all__":
        return [*public.__all__, "__version__"]
    if name not in public.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(public, name)


def __dir__() -> list[str]:
    """Return the public names, also those that were not imported yet."""
    return sorted({*globals(), *__getattr__("__all__")})
