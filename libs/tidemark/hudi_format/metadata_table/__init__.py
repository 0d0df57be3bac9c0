"""Hudi's metadata table: the list of files and the record level index, read and written natively."""

from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RecordIndexEntries,
    write_record_index_log,
)
from tidemark.hudi_format.metadata_table.shard import LookupResult, ShardSnapshot
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot

__all__ = [
    "FileChange",
    "LookupResult",
    "MetadataTableSnapshot",
    "RecordIndexEntries",
    "ShardSnapshot",
    "bootstrap_metadata_table",
    "write_record_index_log",
]
