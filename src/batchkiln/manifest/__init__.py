"""Manifests: YAML with positions, sources of rows and templates, to a job and a stream of items."""

from batchkiln.manifest.example import EXAMPLE
from batchkiln.manifest.inline_items import PlacedItem
from batchkiln.manifest.reader import Manifest, open_manifest
from batchkiln.manifest.schema import json_schema
from batchkiln.manifest.serialize import as_stream

__all__ = ["EXAMPLE", "Manifest", "PlacedItem", "as_stream", "json_schema", "open_manifest"]
