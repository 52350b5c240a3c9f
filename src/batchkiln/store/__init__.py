"""The durable queue. `__init__.pyi` lists the names that other packages may use. No other package knows SQLite.

A name is imported on first use: `status` runs often, and does not need the modules that apply manifests.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
