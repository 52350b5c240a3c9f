"""Manifests: YAML with line numbers, source files and templates, read into a job and a stream of items."""

from batchkiln.core.located_items import LocatedItem
from batchkiln.manifest.file_access import FileAccess
from batchkiln.manifest.manifest import NO_NAME, Manifest, open_manifest
from batchkiln.manifest.schema import example_manifest, json_schema
from batchkiln.manifest.serialize import as_stream
from batchkiln.yaml_reading.program_places import IN_PROGRAM

__all__ = [
    "IN_PROGRAM",
    "NO_NAME",
    "FileAccess",
    "LocatedItem",
    "Manifest",
    "as_stream",
    "example_manifest",
    "json_schema",
    "open_manifest",
]
