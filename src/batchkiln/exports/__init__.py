"""Datasets of what is done: one module per format. Media are linked or copied, never moved; nothing is deleted."""

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
