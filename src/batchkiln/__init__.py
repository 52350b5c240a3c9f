"""batchkiln: a manifest of many prompts becomes images and videos on disk, each paid for once."""


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for: the look-up alone costs more than many a command."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  see above

        return version("batchkiln")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
