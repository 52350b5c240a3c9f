"""Outputs on disk: a file stands under its final name only when it is whole (Law 7)."""

from batchkiln.outputs.file_formats import Media, sniff_media
from batchkiln.outputs.filesystem import FileSystem, RealFiles
from batchkiln.outputs.output_files import OutputFiles
from batchkiln.outputs.partial_file import PartialFile, WrongLength, WrongMedia

__all__ = ["FileSystem", "Media", "OutputFiles", "PartialFile", "RealFiles", "WrongLength", "WrongMedia", "sniff_media"]
