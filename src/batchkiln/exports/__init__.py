"""Datasets of what is done: one module per format. Media are linked or copied, never moved; nothing is deleted."""

from batchkiln.exports.card import Subject
from batchkiln.exports.columns_inference import JobChanged, SchemaInference
from batchkiln.exports.destinations import Link
from batchkiln.exports.export import Export, Format, Wishes
from batchkiln.exports.result import LeftOut, Outcome

__all__ = ["Export", "Format", "JobChanged", "LeftOut", "Link", "Outcome", "SchemaInference", "Subject", "Wishes"]
