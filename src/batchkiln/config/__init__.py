"""Loads the configuration: from a file, from a program's mapping, or from environment variables.

`__init__.pyi` lists the names that other packages may use. A name is imported on first use, as in the store.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
