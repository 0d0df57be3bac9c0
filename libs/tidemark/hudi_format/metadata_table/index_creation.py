"""What making an index of an existing table, and dropping one, have in common, whichever index it is. What is
written here is not fenced: hold the table's lock, and let no coordinator run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.metadata_table.archived_bases import put_back_bases
from tidemark.hudi_format.metadata_table.bootstrap import OPERATION_BULK_INSERT_PREPPED
from tidemark.hudi_format.metadata_table.compaction import pending_compactions
from tidemark.hudi_format.metadata_table.delta_commit import delta_commit_metadata
from tidemark.hudi_format.metadata_table.killed_commands import add_states, end_killed_builds
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH, MetadataLogFile
from tidemark.hudi_format.metadata_table.record_schema import commit_schema
from tidemark.hudi_format.model import BOOTSTRAP_INSTANT_PREFIX, INSTANT_LENGTH, is_bootstrap_instant
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import read_table_config, update_properties
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, State, Timeline, load_timeline
from tidemark.hudi_format.timeline.avro_records import (
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
)


def check_not_compacting(storage: Storage, partitions: Collection[str]) -> None:
    """Raises UnsupportedTableError while a compaction of one of these partitions is pending."""
    timeline = load_timeline(storage, METADATA_TABLE_ROOT)
    found = pending_compactions(storage, timeline)
    if pending := {instant for (name, _), instant in found.items() if name in partitions}:
        raise UnsupportedTableError(
            f"the metadata table's compaction {min(pending)} of {' or '.join(sorted(partitions))} is pending",
            "Let another engine's next write finish it",
        )


def next_build_instant(storage: Storage, metadata: Timeline) -> str:
    """The next free counter of the metadata table's timeline, which says what built an index. Lists the
    metadata table's folders.

    Counters of files are passed over as well. Archival takes builds from the timeline, where Hudi counts from
    0 again. Then a log file of an archived build, which no clean has deleted yet, would complete with ours:
    its entries would count on top of a base file that was compacted since.
    """
    counters = [int(time) for time in (*builds(metadata), *_builds_of_files(storage))]
    return str(max(counters, default=-1) + 1).rjust(INSTANT_LENGTH, "0")


def builds(metadata: Timeline) -> frozenset[str]:
    """The counters on the metadata table's timeline."""
    return frozenset(time for time in metadata.times() if is_bootstrap_instant(time))


def _builds_of_files(storage: Storage) -> Iterator[str]:
    for folder in storage.names(METADATA_TABLE_PATH):
        if folder.startswith("."):
            continue
        for name in storage.names(join_path(METADATA_TABLE_PATH, folder)):
            # Of a hundred thousand names few are of a build.
            found = parse_data_file(name) if f"_{BOOTSTRAP_INSTANT_PREFIX}" in name else None
            if found is not None:
                yield found.instant


def complete_build(
    storage: Storage,
    instant: str,
    completion: str,
    logs: Sequence[MetadataLogFile] = (),
    bases: Sequence[WriteStat] = (),
) -> None:
    """Makes the files of `instant` count. `logs`: the first log file of each group. A commit that names none
    may be a build of the record index, for who reads it, and then caches load that anew. `bases`: of the base
    files, as Hudi names them. Nothing reads those, but they tell a file of a commit from one that a dead
    writer left.

    The completed file comes first, and the other two, which archival reads, behind it: an instant that a
    killed run left pending would be rolled back by the next engine, while its folder may be another one
    already. What such runs left of their instants is made whole before, and base files that the build would
    hide are kept in force (`archived_bases`).
    """
    end_killed_builds(storage)
    put_back_bases(storage, instant)
    metadata = CommitMetadata(extra_metadata={SCHEMA_KEY: commit_schema()})
    if logs:
        metadata = delta_commit_metadata(instant, logs, bases=bases)
    metadata = replace(metadata, operation_type=OPERATION_BULK_INSERT_PREPPED)
    completed = Instant(instant, Action.DELTA_COMMIT, State.COMPLETED, completion)
    storage.create(instant_path(completed, METADATA_TABLE_ROOT), encode_commit_metadata(metadata))
    add_states(storage, completed, METADATA_TABLE_ROOT)


def list_index(storage: Storage, partition: str) -> None:
    """Adds a partition to the table's property."""
    listed = read_table_config(storage).metadata_partitions | {partition}
    update_properties(storage, {keys.METADATA_PARTITIONS: ",".join(sorted(listed))})


def unlist_indexes(storage: Storage, names: Collection[str]) -> None:
    """Takes partitions out of the table's property. Repeatable."""
    listed = read_table_config(storage).metadata_partitions
    if listed & set(names):
        update_properties(storage, {keys.METADATA_PARTITIONS: ",".join(sorted(listed - set(names)))})
