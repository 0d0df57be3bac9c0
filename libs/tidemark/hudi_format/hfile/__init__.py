"""HFile version 3: the format of the metadata table's base files and of the contents of its log blocks."""

from tidemark.hudi_format.hfile.block_search import AMBIGUOUS_BLOCK
from tidemark.hudi_format.hfile.key_values import KeyValues
from tidemark.hudi_format.hfile.layout import Codec, StoredBlock
from tidemark.hudi_format.hfile.reader import BlockRun, HFileReader
from tidemark.hudi_format.hfile.writer import (
    DEFAULT_OPTIONS,
    HFileOptions,
    HFileWriter,
    write_hfile,
)

__all__ = [
    "AMBIGUOUS_BLOCK",
    "DEFAULT_OPTIONS",
    "BlockRun",
    "Codec",
    "HFileOptions",
    "HFileReader",
    "HFileWriter",
    "KeyValues",
    "StoredBlock",
    "write_hfile",
]
