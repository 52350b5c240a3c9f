"""Object storage and other places that fsspec opens by a URL, such as `s3://bucket/folder`.

A file there is complete or absent. Every call has a time limit, and no error text contains a credential (Law 8).
"""

from batchkiln.object_storage.copies import local_file
from batchkiln.object_storage.filesystems import StorageSettings, configure
from batchkiln.object_storage.object_folder import ObjectFolder
from batchkiln.object_storage.threads import in_background, within
from batchkiln.object_storage.url_streams import stream

__all__ = ["ObjectFolder", "StorageSettings", "configure", "in_background", "local_file", "stream", "within"]
