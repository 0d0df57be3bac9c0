"""What the metadata table's reader and its deltacommits ask of a partition, whichever it is.

A partition is one index with a folder of its own (METADATA_TABLE.md, section 1). Its module says what its
file groups are called, how the changes of a commit become a log file, and how stored entries merge. The rest
is the same for all partitions and knows none of them: which instants and blocks count (`validity`,
`log_records`), which files are a slice (`snapshot`), what the deltacommit says (`delta_commit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.storage.base import join_path

METADATA_TABLE_PATH: Final = ".hoodie/metadata"
LOG_VERSION: Final = 1
ChangesT = TypeVar("ChangesT", contravariant=True)
MergedT = TypeVar("MergedT", covariant=True)


@dataclass(frozen=True, slots=True)
class MetadataLogFile:
    """The log file that one commit adds to one file group of the metadata table.

    `size` is in bytes; `upserts` and `deletes` are numbers of records. `ticket` is that of a prepared file
    which is not visible yet; None where nobody has prepared the file, or where it is visible already.
    """

    partition: str
    shard: ShardId
    file_id: str
    name: str
    size: int
    upserts: int = 0
    deletes: int = 0
    ticket: Ticket | None = None

    @classmethod
    def of_commit(
        cls, partition: str, shard: ShardId, file_id: str, instant: str, size: int, upserts: int, deletes: int
    ) -> MetadataLogFile:
        """The file of the deltacommit `instant`. Its name follows from the arguments, so a task or a
        coordinator that repeats a step finds the file that it made before: version 1, write token
        `<shard>-0-0`.
        """
        name = str(LogFileName(file_id, instant, LOG_VERSION, f"{shard}-0-0"))
        return cls(partition, shard, file_id, name, size, upserts, deletes)

    @property
    def path(self) -> str:
        """The file's path relative to the data table's base."""
        return join_path(METADATA_TABLE_PATH, self.partition, self.name)

    def prepared(self, ticket: Ticket) -> MetadataLogFile:
        """The file after it was prepared. The ticket's size counts: where an earlier try made the file
        visible, that one stays, and another version of a library may have compressed it otherwise.
        """
        return replace(self, size=ticket.size, ticket=None if ticket.is_visible else ticket)


@dataclass(frozen=True, slots=True)
class StoredEntries:
    """The entries of one base file or of one log block, with values as they are stored.

    `values` is None in a DELETE block: it removes the keys. `schema` is the Avro schema, as JSON, that the
    values were written under ('' = ours); `source` is what errors call the file or block.
    """

    keys: pa.StringArray
    values: pa.BinaryArray | None
    schema: str
    source: str


class KeyFold(Protocol):
    """How the stored values of one key add up; `source` names their file in errors."""

    def of_key(self, values: Sequence[bytes | None], source: str) -> bytes | None:
        """The value that stays of these, oldest first; None: a delete, and that none stays. Raises
        CorruptFileError.
        """
        ...

    def without_deleted(self, values: pa.BinaryArray, source: str) -> pa.BinaryArray:
        """Null in place of each value that says that its key is deleted. Raises CorruptFileError."""
        ...


class MetadataPartition(Protocol[ChangesT, MergedT]):
    """`ChangesT` is what one commit changes in one shard, `MergedT` what stored entries add up to."""

    @property
    def name(self) -> str:
        """The partition's folder in the metadata table, and its name in the table's properties."""
        ...

    @property
    def shards_max(self) -> int:
        """The highest number of file groups that the partition may have."""
        ...

    @property
    def newest_wins(self) -> bool:
        """Whether of a key's entries the newest counts alone, so that a compaction can copy values as they
        are. Otherwise it asks `fold`, and where there is none it writes what `base_records` says.
        """
        ...

    @property
    def fold(self) -> KeyFold | None:
        """How the entries of one key add up where all of them count; None where the newest counts alone, and
        where entries of different keys have to do with each other.
        """
        ...

    def file_id(self, shard: ShardId) -> str:
        """The id of the file group that is the shard. Raises UnsupportedTableError for a shard that is not
        in 0 to `shards_max` - 1.
        """
        ...

    def log_file(self, changes: ChangesT, instant: str, shard: ShardId) -> tuple[MetadataLogFile, bytes]:
        """The log file that brings the changes to the shard in the deltacommit `instant`, and its bytes.

        Equal arguments give equal bytes. Raises HudiFormatError for changes that cannot be written.
        """
        ...

    def merge(self, parts: Iterable[StoredEntries]) -> MergedT:
        """Merges the entries of one slice's base and log files, given oldest first. Raises
        CorruptFileError.
        """
        ...

    def base_records(self, parts: Iterable[StoredEntries]) -> Mapping[str, bytes]:
        """Key -> value of a base file with the merged entries, in the order of the keys' UTF-8 bytes. Raises
        CorruptFileError.
        """
        ...
