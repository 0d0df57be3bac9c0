"""Index entries of an epoch in a table whose record index is divided by data partition.

1. A task of the epoch's job has all changes of some lanes, and packs them by data partition: a lane has keys
   of every partition, and of every file group there.
2. Then each data partition that changes goes to one task, which counts its file groups, divides its entries
   among them, and makes the log files. A (partition, key) is in one lane, so no order is needed between
   parts.

Of a partition without file groups it makes no file, but returns the content of all of them, because nobody
may see them before the commit (`metadata_table.begun_groups`). So it does for one that another writer began
since the attempt was planned, which makes the attempt void.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.epoch_protocol.batches import FILE_ID, KEY, OP, PARTITION
from tidemark.hudi_format.metadata_table.begun_groups import BegunFile, CommitLogs
from tidemark.hudi_format.metadata_table.partitioned_index import (
    PartitionedEntries,
    PartitionedLayout,
    layout_before,
)
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import instant_to_ms
from tidemark.hudi_format.publication.port import Attempt
from tidemark.ledger_client.named_batches import NamedBatch
from tidemark.stream_writer.epoch_tasks import PartitionsTask
from tidemark.stream_writer.index_task import entries_of, last_changes
from tidemark.stream_writer.packed_rows import packed, unpacked
from tidemark.stream_writer.publishing import prepare_file
from tidemark.stream_writer.task_outcome import PartitionEntries, TaskSucceeded

_COLUMNS: Final = [KEY, FILE_ID, OP]


def packed_partitions(batches: Sequence[NamedBatch]) -> tuple[PartitionEntries, ...]:
    """The changes of one index partition, by data partition."""
    rows = last_changes(batches, by_partition=True)
    if rows is None:
        return ()
    paths = rows.column(PARTITION).combine_chunks()
    numbers = paths.indices.to_numpy(zero_copy_only=False)
    # Plain text: each part would have the names of all files otherwise.
    changes = rows.select(_COLUMNS).set_column(1, FILE_ID, rows.column(FILE_ID).cast(pa.string()))
    parts = []
    for number in np.unique(numbers).tolist():
        part = changes.take(pa.array(np.flatnonzero(numbers == number)))
        parts.append(PartitionEntries(paths.dictionary[number].as_py(), part.num_rows, packed(part)))
    return tuple(parts)


def write_partitions(task: PartitionsTask, attempt: Attempt) -> TaskSucceeded:
    """Makes the log files of the groups that are there and has them prepared; returns the content of those of
    groups that the commit begins. Raises as `prepare_file`.
    """
    before = layout_before(MetadataTableSnapshot.load(attempt.storage), task.instant)
    made: list[MetadataLogFile] = []
    begun: list[BegunFile] = []
    for changed in task.partitions:
        logs = _logs_of(task, changed.path, changed.parts, before)
        made += [log.prepared(prepare_file(attempt, log.path, data)) for log, data in logs.present]
        begun += [BegunFile(log, data) for log, data in logs.begun]
    return TaskSucceeded(metadata_logs=tuple(made), begun=tuple(begun))


def _logs_of(
    task: PartitionsTask, path: str, parts: Sequence[bytes], before: PartitionedLayout
) -> CommitLogs:
    rows = pa.concat_tables([unpacked(part) for part in parts]).combine_chunks()
    files = pc.dictionary_encode(rows.column(FILE_ID).combine_chunks())
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(rows), np.int32), pa.array([path], pa.string()))
    table = pa.table({KEY: rows.column(KEY), PARTITION: paths, FILE_ID: files, OP: rows.column(OP)})
    entries = PartitionedEntries.of_partitions({path: entries_of(table, instant_to_ms(task.instant))})
    own = PartitionedLayout({path: before.shards[path]} if path in before.shards else {})
    return CommitLogs.of(entries, own, own.begun([path], task.begun), task.instant)
