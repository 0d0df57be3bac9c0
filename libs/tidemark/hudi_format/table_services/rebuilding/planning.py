"""Plans a rebuild: the rows that it indexes, and the commit by which the metadata table will show it.

To every reader the new index is a compaction of the metadata table at an instant T: each file group of the
index gets a base file T, and so do the file groups that come, which nobody has seen before. The
other partitions are compacted with it, because Hudi takes instants off the timeline up to the newest
compaction, and a log file of such an instant counts no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark.hudi_format.errors import TimelineConflictError, UnsupportedTableError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.hfile import HFileReader
from tidemark.hudi_format.key_digest import DIGESTS_KEY
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    RECORD_INDEX_PARTITION,
    record_index_file_id,
)
from tidemark.hudi_format.metadata_table.partitions_in_use import partitions_in_use, unserved_partition
from tidemark.hudi_format.metadata_table.record_schema import commit_schema
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator, shard_ids
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_services.compaction_planning import (
    NotNow,
    SizedFiles,
    index_slices_before,
    plan_index_compaction,
)
from tidemark.hudi_format.table_services.operations import (
    CompactionPlan,
    MergeOperation,
    MergeOutcome,
    output_name,
    output_path,
)
from tidemark.hudi_format.table_services.rebuilding.documents import Rebuild, ShardFile
from tidemark.hudi_format.table_services.rebuilding.numbers import Estimate
from tidemark.hudi_format.table_services.records import compaction_metadata, requested_compaction
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Timeline, load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata
from tidemark.hudi_format.timeline.service_records import encode_compaction_plan

REBUILT_KEY = "tidemark.index_rebuilt"
"""In the extra metadata of the commit that shows a rebuilt index: its number of shards."""
# What an entry takes for sorting beside the file: key, value and Arrow's offsets.
_SCRATCH_FACTOR = 3


@dataclass(frozen=True)
class RebuildPlan:
    """``compaction``: of the metadata table, first the other partitions' file groups that have log files,
    then shard by shard. ``slices``: the data table's. ``seen``: the file names of both timelines' instants
    when it was made.
    """

    compaction: CompactionPlan
    slices: Sequence[FileSlice]
    seen: frozenset[str]
    former: int
    shards: int

    @property
    def instant(self) -> str:
        """The instant of the commit that will show the new index."""
        return self.compaction.instant

    def shard_path(self, shard: int) -> str:
        """The path of a shard's new base file."""
        return output_path(self.compaction, self._first + shard, METADATA_TABLE_PATH)

    def others(self) -> list[tuple[int, MergeOperation, str]]:
        """(number, operation, path of the new base file) of each file group of the other partitions that has
        log files.
        """
        return [
            (number, operation, output_path(self.compaction, number, METADATA_TABLE_PATH))
            for number, operation in enumerate(self.compaction.operations[: self._first])
        ]

    def paths(self) -> tuple[str, ...]:
        """The paths of all new base files."""
        others = (path for _, _, path in self.others())
        return (*others, *(self.shard_path(shard) for shard in range(self.shards)))

    def rebuild(self) -> Rebuild:
        """The document of the switch."""
        requested = encode_compaction_plan(requested_compaction(self.compaction))
        return Rebuild(self.instant, self.former, self.shards, self.paths(), requested)

    def commit(self, written: Sequence[ShardFile], others: Sequence[MergeOutcome]) -> CommitMetadata:
        """The content of the commit. ``others``: the outcomes of `others`."""
        outcomes = [*others, *(self._outcome(file) for file in written)]
        metadata = compaction_metadata(self.compaction, outcomes)
        # Digests of an index shard say what was added to its former content: this has none.
        extra = {name: value for name, value in metadata.extra_metadata.items() if name != DIGESTS_KEY}
        return CommitMetadata(
            write_stats=metadata.write_stats,
            extra_metadata={**extra, REBUILT_KEY: str(self.shards)},
            operation_type=metadata.operation_type,
            compacted=metadata.compacted,
        )

    @property
    def _first(self) -> int:
        return len(self.compaction.operations) - self.shards

    def _outcome(self, file: ShardFile) -> MergeOutcome:
        ordinal = self._first + file.shard
        name = output_name(self.compaction, ordinal)
        return MergeOutcome(ordinal, name, file.size, file.entries, file.entries, 0, 0, 0, file.entries, 0)


def plan_rebuild(storage: Storage, shards: int, instants: InstantGenerator) -> RebuildPlan:
    """A rebuild of the table as it is now. Nothing may be pending on its timelines.

    Raises TimelineConflictError where another engine's action is pending, UnsupportedTableError for a
    metadata table with another index than the record index, and as `MetadataTableSnapshot.load`.
    """
    snapshot = MetadataTableSnapshot.load(storage)
    data, metadata = snapshot.data_timeline, snapshot.metadata_timeline
    if pending := [*data.pending(), *metadata.pending()]:
        raise TimelineConflictError(
            f"{pending[0].file_name} is pending on a timeline: let its writer finish. A dead writer's is "
            "rolled back by the next write with Hudi on Spark, Tidemark's own by `tidemark recover`"
        )
    instants.observe(data.times() + metadata.times())
    instant = instants.next()
    files = _index_files(storage)
    compaction = plan_index_compaction(snapshot.validity, files, instant)
    if isinstance(compaction, NotNow):
        raise TimelineConflictError(f"the metadata table cannot be compacted now: {compaction.reason}")
    others = [merge for merge in (compaction.operations if compaction else ()) if not _is_index(merge)]
    slices = index_slices_before(instant, snapshot.validity, files)
    held = {(found.partition_path, found.file_id): found for found in slices}
    ids = [record_index_file_id(shard) for shard in shard_ids(shards)]
    operations = [
        *others,
        *(
            _operation(file_id, held.get((RECORD_INDEX_PARTITION, file_id)), files, instant)
            for file_id in ids
        ),
    ]
    view = TableView.of(storage, data)
    return RebuildPlan(
        CompactionPlan(instant, True, commit_schema(), tuple(operations)),
        view.slices(snapshot.files.names()),
        seen_files(data, metadata),
        snapshot.num_shards,
        shards,
    )


def check_not_overtaken(plan: RebuildPlan, storage: Storage) -> None:
    """Raises TimelineConflictError where anybody wrote since the plan was made. Hold the table's lock."""
    now = seen_files(load_timeline(storage), load_timeline(storage, METADATA_TABLE_ROOT))
    if now != plan.seen:
        [first, *_] = sorted(now ^ plan.seen)
        raise TimelineConflictError(
            f"another writer changed the table while the index was built ({first}): the new index is thrown "
            "away, the former one stays. Run the command again while nobody else writes"
        )


def seen_files(data: Timeline, metadata: Timeline) -> frozenset[str]:
    """The names of all instants' files, by table."""
    return frozenset(
        f"{table}/{instant.file_name}"
        for table, timeline in (("table", data), ("metadata table", metadata))
        for instant in timeline.instants
    )


def estimate(
    storage: Storage, snapshot: MetadataTableSnapshot, tell: Callable[[int, int], None] = lambda _, __: None
) -> Estimate:
    """What a rebuild takes, by the trailers of the index's base files and the sizes of its log files.
    ``tell``: called with each shard and the entries of its base file.
    """
    entries = base_bytes = log_bytes = 0
    sizes = _index_files(storage)[RECORD_INDEX_PARTITION]
    for shard in shard_ids(snapshot.num_shards):
        file_slice = snapshot.shard(shard).file_slice
        log_bytes += sum(sizes.get(name, 0) for name in file_slice.log_files)
        if file_slice.base_file is not None:
            base = HFileReader.open(storage, join_path(RECORD_INDEX_FOLDER, file_slice.base_file))
            entries += base.entry_count
            base_bytes += sizes.get(file_slice.base_file, 0)
            tell(shard, base.entry_count)
    # A log file's entries are compressed like those of a base file.
    entries += entries * log_bytes // max(base_bytes, 1) if entries else log_bytes // _LOG_ENTRY_BYTES
    index_bytes = base_bytes + log_bytes
    return Estimate(entries, index_bytes, index_bytes * _SCRATCH_FACTOR)


_LOG_ENTRY_BYTES = 20


def _index_files(storage: Storage) -> SizedFiles:
    if (unserved := unserved_partition(storage)) is not None:
        raise UnsupportedTableError(
            f"the metadata table has an index {unserved}, which a rebuild would leave as it is",
            "Drop it with Hudi on Spark (DROP INDEX), and build it again afterwards",
        )
    listing = {
        partition.name: storage.list(join_path(METADATA_TABLE_PATH, partition.name))
        for partition in partitions_in_use(storage)
    }
    return {
        name: {info.name: info.size for info in infos if not info.is_dir} for name, infos in listing.items()
    }


def _is_index(operation: MergeOperation) -> bool:
    return operation.partition == RECORD_INDEX_PARTITION


def _operation(file_id: str, held: FileSlice | None, files: SizedFiles, instant: str) -> MergeOperation:
    if held is None:
        return MergeOperation(RECORD_INDEX_PARTITION, file_id, instant, None, (), 0, 0)
    sizes = files[RECORD_INDEX_PARTITION]
    return MergeOperation(
        RECORD_INDEX_PARTITION,
        file_id,
        held.base_instant,
        held.base_file,
        held.log_files,
        sum(sizes[name] for name in held.log_files),
        sizes[held.base_file] if held.base_file else 0,
    )
