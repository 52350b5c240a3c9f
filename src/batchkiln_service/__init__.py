"""A complete local implementation of the generation service.

This module is the public entry: `batchkiln` imports nothing else of the package, which imports nothing of `batchkiln`.
Its names are those of `__init__.pyi`. They are imported on first use, because the process that renders media starts
often and needs none of them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
