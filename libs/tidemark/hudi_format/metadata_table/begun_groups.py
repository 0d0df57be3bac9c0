"""The file groups with which a commit begins partitions of a partitioned record index: which of the commit's
files are theirs, when these appear, and how they go.

Hudi's readers take a group's first log file as the beginning of its only slice. If the instant of that file
is never completed, they pass over the slice, with the log files of all later commits in it:

    .record-index-eu-0000-0_10.log.1_0-0-0    80 bytes of the instant 10, which was given up
    .record-index-eu-0000-0_20.log.1_0-0-0    80 bytes of the instant 20, which is completed
    .record-index-eu-0000-0_20.log.1_0-0-1    its entries: Hudi sees none of them

In a group that was there before such a file is harmless, because the group's first file counts. One that
began since the attempt was planned has a later first file: to the attempt it is a group that is not there
(`layout_before`). Hence three rules for the files of groups that a commit begins:

1. Nobody sees them before the commit is decided. So a task hands over their bytes, and prepares no file.
2. They are published under the table's lock, and it is held until the instant is completed or they are gone.
3. An attempt that is taken back deletes them before the lock is given away. The rollback of its instant comes
   later, and in between another engine may write into the same partition.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from tidemark.hudi_format.errors import CorruptFileError, TimelineConflictError
from tidemark.hudi_format.file_group.names import BaseFileName, LogFileName, parse_data_file
from tidemark.hudi_format.metadata_table.partitioned_index import (
    PartitionedEntries,
    PartitionedLayout,
    commit_logs,
    initial_logs,
)
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    RECORD_INDEX_PARTITION,
    parse_record_index_file_id,
)
from tidemark.hudi_format.publication.port import Publisher
from tidemark.hudi_format.publication.tickets import Ticket

Log = tuple[MetadataLogFile, bytes]
BEGUN_BYTES_MAX: Final = 512 << 20
"""All files of one commit, unpacked: coordinator and writer hold them in memory."""
_PACKING: Final = 1


@dataclass(frozen=True, slots=True)
class CommitLogs:
    """A commit's log files of the record index. ``present``: of groups that are there, which may be made at
    any time. ``begun``: all files of the groups that the commit begins.
    """

    present: Sequence[Log]
    begun: Sequence[Log]

    @classmethod
    def of(
        cls, changes: PartitionedEntries, before: PartitionedLayout, after: PartitionedLayout, instant: str
    ) -> CommitLogs:
        """``before``: the groups that are there; ``after``: those with which the commit ends. Raises as
        `commit_logs`.
        """
        new = after.groups_beyond(before)
        file_ids = {group.file_id for group in new}
        logs = commit_logs(changes, after, instant)
        begun = [(log, data) for log, data in logs if log.file_id in file_ids]
        return cls(
            [(log, data) for log, data in logs if log.file_id not in file_ids],
            [*initial_logs(new, instant), *begun],
        )


def check_not_begun(before: PartitionedLayout, after: PartitionedLayout, now: PartitionedLayout) -> None:
    """Checks, under the table's lock, that nobody else began one of the partitions since ``before``. ``now``:
    of all files that are there, whether or not their instants are completed.

    Raises TimelineConflictError: the other writer may have chosen another number of groups, by which keys
    belong to other ones.
    """
    taken = sorted((after.shards.keys() - before.shards.keys()) & now.shards.keys())
    if taken:
        raise TimelineConflictError(
            f"another writer began the record index of partition {taken[0]!r} with {now.shards[taken[0]]} "
            f"file groups, where {after.shards[taken[0]]} were going to be begun"
        )


def prepare_begun(by: Publisher, begun: Iterable[Log]) -> list[Ticket]:
    """Tickets for the files of groups that a commit begins, which are to be published under the table's lock
    (rule 2). A successor that has their bytes prepares its own.
    """
    return by.prepare_many([(log.path, data) for log, data in begun])


def take_back_begun(by: Publisher, begun: Iterable[MetadataLogFile]) -> None:
    """Deletes those of the files that are there (rule 3), durably. Repeatable. Hold the table's lock, and let
    the instant be completed on neither timeline.
    """
    for log in begun:
        by.storage.delete(log.path)
    by.storage.sync_dir(RECORD_INDEX_FOLDER)


@dataclass(frozen=True, slots=True)
class BegunFile:
    """A file of a group that a commit begins: as the deltacommit names it, and its content."""

    log: MetadataLogFile
    content: bytes


class _Packed(msgspec.Struct, frozen=True):
    """The file as it travels and is stored: its name below `RECORD_INDEX_FOLDER`, its content, and how many
    entries it has.
    """

    name: str
    content: bytes
    upserts: int = 0
    deletes: int = 0


def begun_by(names: Iterable[str], instant: str) -> list[MetadataLogFile]:
    """The files of the groups that `instant` begins. `names`: of all files in the folder.

    A group that has a base file, or a file of an earlier instant, is none of them.
    """
    logs: dict[str, list[LogFileName]] = {}
    for name in names:
        parsed = parse_data_file(name)
        if isinstance(parsed, LogFileName):
            logs.setdefault(parsed.file_id, []).append(parsed)
        elif parsed is not None:
            logs[parsed.file_id] = []
    return [
        _log(str(log), 0)
        for file_id in sorted(logs)
        if logs[file_id] and min(logs[file_id], key=lambda log: log.order).instant == instant
        for log in logs[file_id]
        if log.instant == instant
    ]


def hidden_groups(names: Iterable[str], counts: Callable[[str], bool]) -> dict[str, str]:
    """File groups of the record index whose entries Hudi's readers do not see, though a commit wrote some:
    file id -> the file of an instant that does not count, with which it begins. ``names``: of all files in
    the folder. ``counts``: whether the log files of an instant count.

    A group that has a base file is none of them: a later slice begins with that.
    """
    logs: dict[str, list[LogFileName]] = {}
    compacted: set[str] = set()
    for name in names:
        parsed = parse_data_file(name)
        if isinstance(parsed, BaseFileName):
            compacted.add(parsed.file_id)
        elif parsed is not None:
            logs.setdefault(parsed.file_id, []).append(parsed)
    hidden = {}
    for file_id in sorted(logs.keys() - compacted):
        first = min(logs[file_id], key=lambda log: log.order)
        if not counts(first.instant) and any(counts(log.instant) for log in logs[file_id]):
            hidden[file_id] = str(first)
    return hidden


def left_groups(names: Iterable[str], is_known: Callable[[str], bool]) -> list[MetadataLogFile]:
    """The files of groups that commits began which were undone since: all files of a group in which each is
    of an instant that no timeline has. ``names``: of all files in the folder, listed before the timelines
    were. ``is_known``: whether a timeline has the instant, or had it.

    Hudi's rollback and restore delete the log files that the undone commit names. With the first file of each
    group they do not, and behind that file Hudi sees nothing of what later commits write into the group.
    """
    groups: dict[str, list[BaseFileName | LogFileName]] = {}
    for name in names:
        parsed = parse_data_file(name)
        if parsed is not None:
            groups.setdefault(parsed.file_id, []).append(parsed)
    return [
        _log(str(file), 0)
        for file_id in sorted(groups)
        if all(isinstance(file, LogFileName) and not is_known(file.instant) for file in groups[file_id])
        for file in groups[file_id]
    ]


def packed_begun(files: Sequence[BegunFile]) -> bytes:
    """The files as one text of bytes, b"" without any. Each log file with entries has the schema of the
    metadata table's records in it twice, 9 of its 10 kB where it has few: together they take a tenth.
    """
    if not files:
        return b""
    packed = [_Packed(file.log.name, file.content, file.log.upserts, file.log.deletes) for file in files]
    return zlib.compress(msgspec.msgpack.encode(packed), _PACKING)


def unpacked_begun(packed: bytes, bytes_max: int = BEGUN_BYTES_MAX) -> tuple[BegunFile, ...]:
    """The files that `packed_begun` packed. Raises CorruptFileError for other bytes, and for files that take
    more than ``bytes_max`` or are none of the index's.
    """
    if not packed:
        return ()
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, bytes_max)
        if not unpacking.eof and len(content) == bytes_max:
            raise CorruptFileError(
                f"the files of groups that the commit begins take more than {bytes_max} bytes"
            )
        files = msgspec.msgpack.decode(content, type=list[_Packed])
    except (zlib.error, msgspec.MsgspecError) as error:
        raise CorruptFileError(f"files of groups that a commit begins cannot be unpacked: {error}") from error
    return tuple(
        BegunFile(_log(file.name, len(file.content), file.upserts, file.deletes), file.content)
        for file in files
    )


def _log(name: str, size: int, upserts: int = 0, deletes: int = 0) -> MetadataLogFile:
    """The file as a deltacommit names it. Raises CorruptFileError for a name that is none of the index's."""
    parsed = parse_data_file(name)
    if not isinstance(parsed, LogFileName):
        raise CorruptFileError(f"{name!r} is no log file")
    shard = parse_record_index_file_id(parsed.file_id).shard
    return MetadataLogFile(RECORD_INDEX_PARTITION, shard, parsed.file_id, name, size, upserts, deletes)
