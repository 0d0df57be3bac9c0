"""Refuses a table whose properties list a record index that has no files.

Such an index reads like one without any key: every update would become an insert and double a row, and the
next commit would begin an index with the keys of that commit alone.
"""

from __future__ import annotations

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.index_definitions import (
    IndexKind,
    read_record_index_kind,
)
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.base import Storage


def check_folder(storage: Storage) -> None:
    """Asks whether the folder exists, which costs one call of the storage. Raises UnsupportedTableError."""
    if not storage.exists(RECORD_INDEX_FOLDER):
        raise _missing(f"its folder {RECORD_INDEX_FOLDER} is gone")


def check_files(storage: Storage) -> None:
    """Lists the folder. Raises UnsupportedTableError where it has no file of the index. A partitioned one has
    none as long as the table has no rows: commits may have changed nothing, or a restore took all back. Then
    the partition `files` lists no data file.
    """
    if any(parse_data_file(info.name) is not None for info in storage.list(RECORD_INDEX_FOLDER)):
        return
    kind = read_record_index_kind(storage)
    if kind is IndexKind.PARTITIONED and not any(MetadataTableSnapshot.load(storage).files.names().values()):
        return
    raise _missing(f"its folder {RECORD_INDEX_FOLDER} has no file of it")


def check_shards(num_shards: int) -> None:
    """``num_shards`` is a snapshot's. Raises UnsupportedTableError where it is 0."""
    if not num_shards:
        raise _missing(f"no commit completed the files in {RECORD_INDEX_FOLDER}")


def _missing(why: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"the record index has no shards: hoodie.properties lists it, and {why}. Every update would double a "
        "row",
        "Put the folder back from a copy of the table, of the same moment as the rest. Else stop all writers "
        "and build the record index anew with Hudi on Spark "
        '(docs/hudi-beside.md, "A record index that is gone")',
    )
