"""Tells one building of the record index from another, for whoever keeps copies of what the index said.

Names do not tell: an index that is built anew has the file groups of the former one, its instant is a
constant (`00000000000000001`), and once it was compacted its base file has a newer time than what was known
of the former one, as after any compaction. Example: a cache knows the index up to 10:00. At 10:05 another
engine drops the index, builds it anew because it was wrong, and compacts it. Timelines and names look as if
the known index had been compacted.

What tells is `.hoodie_partition_metadata` in the index's folder. Every engine makes it with the folder and
never writes it again, and Hudi drops an index with its folder. `tidemark table rebuild-index`, which keeps
the folder, replaces that file, and so does a coordinator that made hidden entries of the index count again
(`archived_bases`). A copy of the table that does not keep times of files counts as another index:
caches are filled again then.
"""

from __future__ import annotations

from typing import Final

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    RECORD_INDEX_PARTITION,
)
from tidemark.hudi_format.properties import parse_properties
from tidemark.hudi_format.storage.base import Storage, join_path

LIFE_PATH: Final = join_path(RECORD_INDEX_FOLDER, ".hoodie_partition_metadata")


def index_life(storage: Storage) -> str:
    """A name of the index as it was built; "" where that cannot be told."""
    return partition_life(storage, RECORD_INDEX_PARTITION)


def partition_life(storage: Storage, name: str) -> str:
    """As `index_life`, of this partition of the metadata table."""
    info = storage.stat(folder_path(name))
    return "" if info is None else info.version


def folder_path(name: str) -> str:
    """The file that is made with the folder of this partition of the metadata table."""
    return join_path(METADATA_TABLE_PATH, name, ".hoodie_partition_metadata")


def folder_properties(storage: Storage, name: str) -> dict[str, str]:
    """What that file says; empty where it is missing. Raises CorruptFileError."""
    try:
        return parse_properties(storage.read(folder_path(name)).decode("latin-1"))
    except FileMissingError:
        return {}


def partition_build(storage: Storage, name: str) -> str:
    """The instant that built this partition of the metadata table, whoever did; "" where there is none.
    Raises CorruptFileError.
    """
    return folder_properties(storage, name).get("commitTime", "")
