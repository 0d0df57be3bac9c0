"""Writes the record index entries of one index partition: a log file for each shard that changes.

Rows come in (ledger order, sequence). Of each key the last location or delete counts. Rows with an unchanged
location carry ordering values for assigners; they are not written into the record index.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.epoch_protocol.batches import FILE_ID, KEY, OP, PARTITION, SHARD, IndexOp
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX, RecordIndexEntries
from tidemark.hudi_format.model import RecordLocation, ShardId, instant_to_ms
from tidemark.hudi_format.publication.port import Attempt
from tidemark.ledger_client.named_batches import NamedBatch
from tidemark.stream_writer.epoch_tasks import EpochTask
from tidemark.stream_writer.publishing import Publishers, prepare_file


def write_index_partition(
    task: EpochTask, attempt: Attempt, publishers: Publishers, batches: Sequence[NamedBatch]
) -> list[Future[MetadataLogFile]]:
    """Makes one log file for each shard that changes and has it prepared. Returns, for each, the file with
    its counts of keys, and its ticket.
    """
    rows = last_changes(batches)
    if rows is None:
        return []
    shards = rows.column(SHARD).to_numpy()
    instant_ms = instant_to_ms(task.instant)
    files: list[Future[MetadataLogFile]] = []
    for shard in np.unique(shards):
        entries = entries_of(rows.take(np.flatnonzero(shards == shard)), instant_ms)
        log, data = RECORD_INDEX.log_file(entries, task.instant, ShardId(int(shard)))
        files.append(publishers.submit(_prepare, attempt, log, data))
    return files


def _prepare(attempt: Attempt, log: MetadataLogFile, data: bytes) -> MetadataLogFile:
    return log.prepared(prepare_file(attempt, log.path, data))


def last_changes(batches: Sequence[NamedBatch], *, by_partition: bool = False) -> pa.Table | None:
    """The last change of each key, or of each (partition, key), in the order of the rows; None if none
    changes.
    """
    tables = []
    for named in batches:
        table = pa.Table.from_batches([named.batch]).select([KEY, SHARD, PARTITION, FILE_ID, OP])
        tables.append(table.filter(pc.not_equal(table.column(OP), IndexOp.UNCHANGED)))
    if not any(table.num_rows for table in tables):
        return None
    rows = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    keys = pc.dictionary_encode(rows.column(KEY).combine_chunks())
    codes = keys.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if by_partition:
        partitions = rows.column(PARTITION).combine_chunks().indices.to_numpy(zero_copy_only=False)
        # Each (partition, key) as one number.
        codes += partitions.astype(np.int64) * len(keys.dictionary)
    # `np.unique` returns the first index of each code; of the reversed codes that is the last row of the key.
    # Example: codes 0 1 0 -> indexes from the end 0 (code 0) and 1 (code 1) -> rows 2 and 1.
    _, from_end = np.unique(codes[::-1], return_index=True)
    return rows.take(np.sort(len(codes) - 1 - from_end))


def entries_of(rows: pa.Table, instant_ms: int) -> RecordIndexEntries:
    """The rows as entries of the record index. A delete has location id -1 and instant 0."""
    partitions = rows.column(PARTITION).combine_chunks()
    files = rows.column(FILE_ID).combine_chunks()
    # Each location is made once, however many keys it has. A location's number is partition * width + file,
    # so division gives both back. Example with 3 file ids: partition 1, file 2 -> 5 -> 5 // 3 = 1, 5 % 3 = 2.
    width = len(files.dictionary)
    pair = partitions.indices.to_numpy(zero_copy_only=False).astype(
        np.int64
    ) * width + files.indices.to_numpy(zero_copy_only=False)
    distinct, location_ids = np.unique(pair, return_inverse=True)
    locations = [
        RecordLocation(
            partitions.dictionary[int(p // width)].as_py(), files.dictionary[int(p % width)].as_py()
        )
        for p in distinct
    ]
    is_delete = pc.equal(rows.column(OP), IndexOp.DELETE).to_numpy()
    return RecordIndexEntries(
        keys=rows.column(KEY).combine_chunks(),
        location_ids=np.where(is_delete, -1, location_ids).astype(np.int32),
        locations=locations,
        instant_ms=np.where(is_delete, 0, instant_ms).astype(np.int64),
    )
