"""What every operation of the engine works with: the table as it is, times, and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tests.hudi_rules.documents import decode
from tests.hudi_rules.slices import Group, parse_data_file
from tests.hudi_rules.table import HudiTable
from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.checkers.layout import SUB, Layout, zone_of
from tests.simulation.world.checkers.model import Row
from tests.simulation.world.checkers.secondary import NAME
from tests.simulation.world.checkers.table import Merged
from tests.simulation.world.foreign import instants
from tests.simulation.world.foreign.clock import HudiClock
from tests.simulation.world.foreign.listed_indexes import LISTED, named_in
from tests.simulation.world.foreign.partitioned_entries import (
    begin_groups,
    is_first_of_group,
    partition_logs,
)
from tests.simulation.world.foreign.secondary_entries import changed_logs
from tidemark.hudi_format.column_ranges import column_ranges
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, write_base_file
from tidemark.hudi_format.file_group.changes import Deletes
from tidemark.hudi_format.file_group.log_blocks import data_log_bytes
from tidemark.hudi_format.file_group.names import BaseFileName, LogFileName
from tidemark.hudi_format.file_group.write_stats import log_append_stat, new_base_file_stat
from tidemark.hudi_format.metadata_table.delta_commit import (
    delta_commit_metadata,
    file_changes,
    publish_files_log,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitions.column_stats import (
    COLUMN_STATS,
    StatsChanges,
    file_records,
)
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    DELETED,
    RecordIndexEntries,
    record_index_log,
    write_record_index_log,
)
from tidemark.hudi_format.model import RecordLocation, ShardId, instant_to_ms
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.timeline.avro_container import encode_container
from tidemark.hudi_format.timeline.avro_records import (
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    group_stats,
)
from tidemark.stream_runtime.ids import IdSource

FOREIGN_KEY: Final = "sim.foreign"
METADATA_PARTITIONS: Final = ("files", "record_index")
_LISTS_STATS: Final = b"hoodie.table.metadata.partitions=column_stats,"
NOTE: Final = "note"
"""The column that the engine adds."""
Changes = dict[str, Row | None]
"""Key -> what becomes of it, None: it is deleted."""
Place = tuple[str, str]


@dataclass
class Write:
    """A write that has begun. ``groups``: those that it changes or replaces; ``known``: what was completed
    when it began; ``places``: key -> where it lives from then on, None: nowhere; ``token``: in the names of
    its files, another one for each try; ``records``: of column stats.
    """

    instant: str
    action: str
    operation: str
    changes: Changes
    known: frozenset[str]
    stats: list[WriteStat] = field(default_factory=list)
    places: dict[str, RecordLocation | None] = field(default_factory=dict)
    groups: set[Group] = field(default_factory=set)
    replaced: dict[str, list[str]] = field(default_factory=dict)
    token: str = "7-7-7"
    records: dict[str, bytes] = field(default_factory=dict)


class Bench:
    """``look()`` reads the table; ``is_log``: MERGE_ON_READ. ``has_note``: the column was added.
    ``stats_of``: the columns of which its options keep column stats that the table has.
    """

    def __init__(
        self,
        storage: Any,
        clock: HudiClock,
        ids: IdSource,
        schema: TableSchema,
        look: Callable[[], Look],
        shards: int,
        is_log: bool,
        ordered: bool,
        layout: Layout,
    ) -> None:
        self.layout = layout
        self.storage, self.clock, self.ids, self.look = storage, clock, ids, look
        self.shards, self.is_log, self.has_note = shards, is_log, False
        self._schema, self._ordered = schema, ordered
        self.action = "deltacommit" if is_log else "commit"
        self._tries = 0
        self.stats_of: tuple[str, ...] = ()
        self._built_at = set[str]()

    def may(self) -> bool:
        """Whether the table is there and its lock free."""
        return self.storage.exists(".hoodie/hoodie.properties") and not self.storage.exists(instants.LOCK)

    def table(self, look: Look) -> HudiTable:
        """The table's committed files, as Hudi's view of them."""
        files: dict[str, list[str]] = {}
        for file in look.view.data:
            folder, _, name = file.path.rpartition("/")
            files.setdefault(folder, []).append(name)
        return HudiTable(self.storage.file_names, self.storage.memory.read, files)

    def listed(self) -> dict[str, list[str]]:
        """Partition path -> all files there, whatever became of their instants."""
        return {folder: self.storage.file_names(folder) for folder in self.storage.folders()}

    def instant(self, look: Look) -> str:
        """A requested or completion time that no instant has."""
        times = look.timeline.hudi, look.metadata.hudi
        taken = {each.requested for one in times for each in one.instants.values()}
        return self.clock.take(taken | look.timeline.hudi.archived.keys() | self._built_at)

    def built_at(self, look: Look) -> str:
        """When what it builds in the metadata table alone completes: above all that there is, whatever its
        clock says, and when nothing that follows does.
        """
        with self.clock.beyond(max(look.timeline.hudi.newest, look.metadata.hudi.newest)):
            completion = self.instant(look)
        self._built_at.add(completion)
        return completion

    @property
    def schema(self) -> TableSchema:
        """The table's schema as the engine has it."""
        if not self.has_note or self.layout.has_notes:
            return self._schema
        document = json.loads(self._schema.avro_json)
        document["fields"].append({"name": NOTE, "type": ["null", "string"], "default": None})
        return TableSchema.from_avro(json.dumps(document), "t")

    # ------------------------------------------------------------ whether Hudi's own rules would show it

    def is_sound(self, look: Look, time: str, groups: Iterable[Group], keys: Iterable[str]) -> bool:
        """Whether what completes after this time lies above all that it changes, and within both
        timelines.
        """
        data, metadata = look.timeline.hudi, look.metadata.hudi
        limits = [data.start or "", metadata.start or ""]
        touched = set(groups)
        for file in look.view.data:
            if (file.path.rpartition("/")[0], file.file_id) in touched:
                limits += [file.instant, data.completion(file.instant) or ""]
        limits += [at for group, at in look.timeline.scheduled.items() if group in touched]
        for each in look.reader.instants_of(look.view, set(keys)):
            limits += [each, metadata.completion(each) or ""]
        limits += _base_instants(look.view.shards)
        return time > max(limits) and self.is_listed(look, time)

    def is_listed(self, look: Look, completion: str) -> bool:
        """Whether readers find in `files` what completes in the metadata table at this time: a log file that
        completes below a compaction of that table lies in the slice before it, which nobody reads any more.
        """
        return completion > max(_base_instants(look.view.listing), default="")

    # ------------------------------------------------------------ files

    def token(self) -> str:
        """A write token that no try had before."""
        self._tries += 1
        return f"{self._tries}-8-8"

    def base_file(self, write: Write, group: Group, rows: Mapping[str, Row], is_cut: bool = False) -> None:
        """A base file of the write, with its marker. ``is_cut``: its writer dies in the middle of it."""
        partition, file_id = group
        name = str(BaseFileName(file_id, write.token, write.instant, "parquet"))
        table = self._rows(rows, partition, write.instant, name)
        data = write_base_file(table, self.schema)
        stat = new_base_file_stat(partition, file_id, name, len(data), len(rows))
        self._file(write, name, data[: len(data) // 2] if is_cut else data, stat, table)

    def log_file(self, write: Write, group: Group, rows: Mapping[str, Row], deleted: Iterable[str]) -> None:
        """A log file of the write: rows, and deletes that hold whatever the ordering."""
        partition, file_id = group
        name = str(LogFileName(file_id, write.instant, 1, write.token))
        table = self._rows(rows, partition, write.instant, file_id) if rows else None
        gone = Deletes.without_ordering(pa.array(sorted(map(self.layout.key_of, deleted)), pa.string()))
        ordering = OrderingField.of(self.schema, "ts") if self._ordered else None
        data = data_log_bytes(self.schema, write.instant, table, gone, partition, ordering)
        stat = log_append_stat(
            partition, file_id, name, len(data), write.instant, None, updates=len(rows), deletes=len(gone)
        )
        self._file(write, name, data, stat, table)

    def _file(self, write: Write, name: str, data: bytes, stat: WriteStat, rows: pa.Table | None) -> None:
        path = join_path(stat.partition_path, name)
        instants.mark(self.storage, write.instant, path)
        self.storage.create(path, data)
        write.stats.append(stat)
        if rows is not None and self.stats_of:
            ranges = column_ranges(rows, self.stats_of)
            write.records |= file_records(stat.partition_path, name, ranges)
        write.groups.add((stat.partition_path, stat.file_id))

    def _rows(self, rows: Mapping[str, Row], partition: str, instant: str, name: str) -> pa.Table:
        days = [self.layout.day(row.day) for row in rows.values()]
        record_keys = [self.layout.key_of(key) for key in rows]
        values: dict[str, list[Any]] = {
            "id": [self.layout.name(key) for key in rows],
            "sub": [SUB] * len(rows),
            "day": days,
            "zone": [zone_of(day) for day in days],
            "ts": [row.at for row in rows.values()],
            "v": [row.number for row in rows.values()],
        }
        if self.has_note or self.layout.has_notes:
            values[NOTE] = [row.note for row in rows.values()]
        columns = self.schema.arrow
        user = pa.table({name: values[name] for name in columns.names}, schema=columns)
        keys = pa.chunked_array([pa.array(record_keys, pa.string())])
        return attach_meta_columns(user, keys, partition, instant, 0, name, 0)

    def rows_of(self, look: Look, group: Group, names: Iterable[str]) -> dict[str, Row]:
        """The rows that these files of a group hold, merged in this order."""
        by_name = {
            file.path.rpartition("/")[2]: file
            for file in look.view.data
            if (file.path.rpartition("/")[0], file.file_id) == group
        }
        return dict(look.reader.group_rows(group, tuple(by_name[name] for name in names)))

    # ------------------------------------------------------------ the metadata table

    @property
    def indexed(self) -> str:
        """The column of which it builds a secondary index."""
        return NOTE if self.layout.has_notes else "ts"

    @property
    def has_secondary(self) -> bool:
        """Whether the table lists the secondary index."""
        return NAME in named_in(self.storage, LISTED)

    def partitions(self) -> tuple[str, ...]:
        """What a compaction of the metadata table takes; column stats stay as they are here."""
        return (*METADATA_PARTITIONS, *((NAME,) if self.has_secondary else ()))

    def write_commit(self, write: Write, completion: str) -> None:
        """The metadata table's deltacommit of a write, with column stats and entries of the secondary index
        if the table lists them.
        """
        records = write.records if _LISTS_STATS in self.storage.read(".hoodie/hoodie.properties") else {}
        names = self.storage.file_names(".hoodie/metadata/column_stats") if records else []
        groups = {file.file_id for file in map(parse_data_file, names) if file is not None}
        logs = []
        for group, changes in StatsChanges(records).by_group(len(groups)).items() if groups else ():
            log, data = COLUMN_STATS.log_file(changes, write.instant, group)
            publish_log(Unfenced(self.storage), log, data)
            logs.append(log)
        if self.has_secondary:
            logs += changed_logs(
                self.storage, write.instant, self.indexed, self.look().content.rows, write.changes
            )
        self.delta_commit(write.instant, file_changes(write.stats), write.places, completion, logs)

    def delta_commit(
        self,
        instant: str,
        changes: list[FileChange],
        places: Mapping[str, RecordLocation | None],
        completion: str,
        more: Iterable[MetadataLogFile] = (),
    ) -> None:
        """The metadata table's deltacommit of an instant."""
        instants.request(self.storage, instant, "deltacommit", root=instants.METADATA)
        instants.start(self.storage, instant, "deltacommit", root=instants.METADATA)
        logs = [
            publish_files_log(Unfenced(self.storage), instant, changes),
            *self._index(instant, places),
            *more,
        ]
        content = encode_commit_metadata(delta_commit_metadata(instant, logs))
        instants.complete(self.storage, instant, "deltacommit", completion, content, instants.METADATA)

    def _index(self, instant: str, places: Mapping[str, RecordLocation | None]) -> list[MetadataLogFile]:
        if self.layout.by_partition:
            begun = begin_groups(self.storage, instant, self.new_partitions(places), self.shards)
            return [*begun, *partition_logs(self.storage, instant, places, self.layout)]
        by_shard: dict[int, list[str]] = {}
        for key in places:
            by_shard.setdefault(self.shard(key), []).append(key)
        logs = []
        for shard, keys in sorted(by_shard.items()):
            found = [places[key] for key in keys]
            live = [each for each in found if each is not None]
            ids = [live.index(each) if each is not None else DELETED for each in found]
            moments = [instant_to_ms(instant) if each is not None else 0 for each in found]
            entries = RecordIndexEntries(
                pa.array(keys, pa.string()), np.array(ids, np.int32), live, np.array(moments, np.int64)
            )
            data = write_record_index_log(entries, instant)
            log = record_index_log(instant, ShardId(shard), len(data), len(live), len(keys) - len(live))
            publish_log(Unfenced(self.storage), log, data)
            logs.append(log)
        return logs

    def shard(self, key: str) -> int:
        """The shard of the record index that a key belongs to."""
        return int(record_index_shard(pa.array([key]), self.shards)[0])

    def begin_index_groups(self, write: Write) -> None:
        """The metadata table's deltacommit of a write begins, with the first files of the groups of its
        partitions, and goes no further.
        """
        instants.request(self.storage, write.instant, "deltacommit", root=instants.METADATA)
        instants.start(self.storage, write.instant, "deltacommit", root=instants.METADATA)
        begin_groups(self.storage, write.instant, self.new_partitions(write.places), self.shards)

    def new_partitions(self, identities: Iterable[str]) -> set[str]:
        """The partitions of these rows of which Hudi thinks that it is the first that writes there."""
        look = self.look()
        return set(map(self.layout.path_of, identities)) - look.reader.partitions(look.view)

    # ------------------------------------------------------------ documents

    def commit_document(self, write: Write) -> bytes:
        """What the completed file says; with the replaced groups where the action replaces some."""
        extra = {SCHEMA_KEY: self.schema.avro_json, FOREIGN_KEY: json.dumps(write.changes)}
        metadata = CommitMetadata(
            write_stats=group_stats(write.stats), extra_metadata=extra, operation_type=write.operation
        )
        content = encode_commit_metadata(metadata)
        if write.action not in ("replacecommit", "clustering"):
            return content
        document = {**decode(content), "partitionToReplaceFileIds": write.replaced}
        return encode_container("replace-commit-metadata", document)

    def metadata_files_of(self, instant: str, *, without_first: bool = False) -> list[str]:
        """Paths of the metadata table's files that an instant wrote; ``without_first``: but for the first
        files of groups of a partitioned record index, which no commit names.
        """
        found = []
        for partition in (*METADATA_PARTITIONS, COLUMN_STATS.name, NAME):
            folder = f".hoodie/metadata/{partition}"
            for name in self.storage.file_names(folder):
                file = parse_data_file(name)
                if file is None or file.instant != instant:
                    continue
                if not (without_first and is_first_of_group(name)):
                    found.append(join_path(folder, name))
        return found


def _base_instants(groups: Merged) -> list[str]:
    """Instants of the base files that are read of these file groups."""
    return [file.instant for _, files in groups for file in files if not file.is_log]
