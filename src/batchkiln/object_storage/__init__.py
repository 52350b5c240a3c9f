"""Object storage and other places that fsspec opens by a URL, such as `s3://bucket/folder`.

A file there is complete or absent. Every call has a time limit, and no error text contains a credential (Law 8).

A name is imported on first use: help and `status` need none of the threads and file systems.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
