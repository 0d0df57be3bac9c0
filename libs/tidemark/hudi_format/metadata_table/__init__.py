"""Hudi's metadata table: the list of files and the record level index, read and written natively."""

from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.metadata_table.files_partition import FileChange, FilesPartition, write_files_log
from tidemark.hudi_format.metadata_table.record_index import RecordIndexEntries, write_record_index_log
from tidemark.hudi_format.metadata_table.shard import LookupResult, ShardSnapshot
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot

__all__ = [
    "FileChange",
    "FilesPartition",
    "LookupResult",
    "MetadataTableSnapshot",
    "RecordIndexEntries",
    "ShardSnapshot",
    "bootstrap_metadata_table",
    "write_files_log",
    "write_record_index_log",
]
