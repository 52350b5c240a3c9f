"""Output files on disk. A file gets its final name only when it is complete (Law 7)."""

from batchkiln.outputs.file_formats import FileFormat, sniff_format
from batchkiln.outputs.filesystem import FileSystem
from batchkiln.outputs.output_files import OutputFiles
from batchkiln.outputs.partial_file import NotAnOutput, PartialFile, WrongLength
from batchkiln.outputs.staged_objects import StagedObjects, move_staged

__all__ = [
    "FileFormat",
    "FileSystem",
    "NotAnOutput",
    "OutputFiles",
    "PartialFile",
    "StagedObjects",
    "WrongLength",
    "move_staged",
    "sniff_format",
]
