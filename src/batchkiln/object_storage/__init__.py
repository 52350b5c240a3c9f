"""Object storage and other places that fsspec opens by a URL, such as `s3://bucket/folder`.

A file there is complete or absent. Every call has a time limit, and no error text contains a credential (Law 8).
"""

from batchkiln.object_storage.connecting import StorageSettings, configure
from batchkiln.object_storage.copies import local_file
from batchkiln.object_storage.folder import ObjectFolder
from batchkiln.object_storage.reading import stream
from batchkiln.object_storage.threads import in_background, within

__all__ = ["ObjectFolder", "StorageSettings", "configure", "in_background", "local_file", "stream", "within"]
