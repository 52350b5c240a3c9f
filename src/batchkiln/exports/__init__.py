"""Datasets of finished outputs. Media are linked or copied, never moved, and no file of another program is deleted."""

from batchkiln.exports.card import JobFacts
from batchkiln.exports.dataset_columns import JobChangedDuringExport, SchemaInference
from batchkiln.exports.destinations import Link
from batchkiln.exports.export import Export, ExportOptions, Format
from batchkiln.exports.result import ExportResult, LeftOut

__all__ = [
    "Export",
    "ExportOptions",
    "ExportResult",
    "Format",
    "JobChangedDuringExport",
    "JobFacts",
    "LeftOut",
    "Link",
    "SchemaInference",
]
