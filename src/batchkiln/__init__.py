"""batchkiln: a manifest of many prompts becomes images and videos on disk, each paid for once."""

from importlib.metadata import version

__version__ = version("batchkiln")
