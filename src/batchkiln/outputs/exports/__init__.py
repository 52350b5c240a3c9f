"""Datasets of what is done: one module per format. Media are linked or copied, never moved; nothing is deleted."""

from batchkiln.outputs.exports.card import Subject
from batchkiln.outputs.exports.export import Export, Format, Wishes
from batchkiln.outputs.exports.outcome import LeftOut, Outcome
from batchkiln.outputs.exports.places import Link
from batchkiln.outputs.exports.shapes import JobChanged, Shapes

__all__ = ["Export", "Format", "JobChanged", "LeftOut", "Link", "Outcome", "Shapes", "Subject", "Wishes"]
