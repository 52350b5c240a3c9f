"""The queue on disk. All that other packages use of it is named in `__init__.pyi`; SQLite is known nowhere else.

A name is imported on first use: `status` is run often, and needs nothing of what applies manifests.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
