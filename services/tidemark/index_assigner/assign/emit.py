"""Encodes tagged rows as messages for the data, index and tombstones topics, and makes their ledger entry.

Data rows are partitioned by file group (`Locations.topic_partitions_of`), index and tombstone rows by lane. A
message has about ``batch_bytes``, and never more than ``message_bytes``. All messages are made before the
transaction begins; the ledger entry is completed with their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.epoch_protocol.batches import (
    DATA_COLUMNS,
    INDEX_COLUMNS,
    KEY,
    SHARD,
    TOMBSTONE_COLUMNS,
    DataOp,
    with_user_columns,
)
from tidemark.epoch_protocol.entries import Consumed, Topic, TransactionTagged
from tidemark.epoch_protocol.messages import (
    EncodedBatch,
    by_partition,
    message_values,
    numbered,
    produced_ranges,
)
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.assign.keyed_batch import KeyedBatch
from tidemark.index_assigner.assign.tagger import OutRows, TaggedBatch
from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array, Locations
from tidemark.index_assigner.slots.stage_work import ClaimFacts
from tidemark.ledger_client.topics import TopicNames
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.kafka.ledger_transaction import OutgoingMessage
from tidemark.stream_runtime.kafka.ports import TopicPartition

# Room for Kafka's own fields and our headers. Less than the shuffle stage reserves, because a row that fits
# into a keyed message must fit into a data message, which has a file id more.
_MESSAGE_OVERHEAD_BYTES: Final = 512


@dataclass(frozen=True)
class EmitLimits:
    """`limits.batch_bytes` and `limits.message_bytes`."""

    batch_bytes: int
    message_bytes: int


class Emitter:
    """Encodes tagged batches of one table. Holds no state between batches."""

    def __init__(
        self,
        schema: TableSchema,
        locations: Locations,
        lanes: int,
        limits: EmitLimits,
        partitioned: bool = False,
    ) -> None:
        """``partitioned``: the record index is, so a tombstone names its partition without a file, too."""
        self._partitioned = partitioned
        self._user = schema.arrow.names
        self._data_schema = with_user_columns(DATA_COLUMNS, schema.arrow)
        self._locations = locations
        self._lanes = lanes
        self._limits = limits

    def encode(self, tagged: TaggedBatch) -> list[EncodedBatch]:
        """Makes the data messages, then index, then tombstones, each partition by partition.

        Raises SetupError for a row that fits into no message; the shuffle stage refuses such records before.
        """
        rows = tagged.batch.rows
        shards = rows.column(SHARD).to_numpy()
        out: list[EncodedBatch] = []
        data = tagged.data
        by_group = self._locations.topic_partitions_of(data.location)
        out += self._topic(Topic.DATA, data, by_group, lambda o: self._data(rows, o))
        index = tagged.index
        out += self._topic(
            Topic.INDEX, index, shards[index.row] % self._lanes, lambda o: self._index(rows, shards, o)
        )
        gone = tagged.tombstones
        out += self._topic(
            Topic.TOMBSTONES,
            gone,
            shards[gone.row] % self._lanes,
            lambda o: self._tombstones(tagged.batch, shards, o, tagged.expires_ms),
        )
        return out

    def _topic(
        self, topic: Topic, rows: OutRows, partitions: Int32Array, build: Callable[[OutRows], pa.RecordBatch]
    ) -> list[EncodedBatch]:
        out = []
        order, ranges = by_partition(partitions)
        for partition, start, end in ranges:
            for count, value in self._messages(build(_taken(rows, order[start:end]))):
                out.append(EncodedBatch(topic, partition, value, count))
        return out

    def _messages(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        """Yields (number of rows, value) of each message."""

        def refuse(position: int, size: int) -> None:
            raise SetupError(
                f"key {batch.column(KEY)[position].as_py()!r}: its row takes {size} bytes, but "
                f"limits.message_bytes is {self._limits.message_bytes}: raise it"
            )

        limit = self._limits.message_bytes - _MESSAGE_OVERHEAD_BYTES
        return message_values(batch, self._limits.batch_bytes, limit, refuse)

    def _data(self, rows: pa.RecordBatch, out: OutRows) -> pa.RecordBatch:
        positions = pa.array(out.row)
        deletes = out.op == DataOp.DELETE
        # `take` makes a null of a null position. So positions [0, null] give a delete in the second row
        # nulls in all user columns: a delete carries its key alone.
        filled = pa.array(out.row, mask=deletes) if deletes.any() else positions
        user = rows.select(self._user).take(filled)
        ours = [
            rows.column(KEY).take(positions),
            *self._location_columns(out.location),
            _ordering(out),
            pa.array(out.op),
        ]
        return pa.RecordBatch.from_arrays([*ours, *user.columns], schema=self._data_schema)

    def _index(self, rows: pa.RecordBatch, shards: npt.NDArray[np.int32], out: OutRows) -> pa.RecordBatch:
        columns = [
            rows.column(KEY).take(pa.array(out.row)),
            pa.array(shards[out.row]),
            *self._location_columns(out.location),
            _ordering(out),
            pa.array(out.exact),
            pa.array(out.op),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=INDEX_COLUMNS)

    def _tombstones(
        self, batch: KeyedBatch, shards: npt.NDArray[np.int32], out: OutRows, expires_ms: int
    ) -> pa.RecordBatch:
        paths, files = self._location_columns(out.location)
        if self._partitioned:
            paths = self._partition_column(batch.partitions[out.row])
        columns = [
            batch.rows.column(KEY).take(pa.array(out.row)),
            pa.array(shards[out.row]),
            paths,
            files,
            pa.array(out.ordering),
            pa.array(np.full(len(out), expires_ms, np.int64)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=TOMBSTONE_COLUMNS)

    def _partition_column(self, partitions: Int32Array) -> pa.DictionaryArray:
        used, codes = np.unique(partitions, return_inverse=True)
        names = [self._locations.partition_names[number] for number in used.tolist()]
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names, pa.string()))

    def _location_columns(self, locations: Int32Array) -> tuple[pa.Array, pa.Array]:
        """Partition path and file id of each location; the dictionaries hold only the locations of these
        rows.
        """
        # NO_LOCATION is -1 and becomes null. It sorts first, so with it all other codes are one too high:
        # locations [7, -1] have distinct values [-1, 7] and codes [1, 0]; less one and masked: [0, null].
        distinct, codes = np.unique(locations, return_inverse=True)
        known = distinct != NO_LOCATION
        indices = pa.array((codes - int(not known.all())).astype(np.int32), mask=locations == NO_LOCATION)
        used = distinct[known].tolist()
        paths = pa.array([self._locations.partition_paths[i] for i in used], pa.string())
        files = pa.array([self._locations.file_ids[i] for i in used], pa.string())
        return (
            pa.DictionaryArray.from_arrays(indices, paths),
            pa.DictionaryArray.from_arrays(indices, files),
        )


def _taken(rows: OutRows, at: npt.NDArray[np.int64]) -> OutRows:
    return OutRows(
        rows.row[at], rows.location[at], rows.op[at], rows.ordering[at], rows.has_ordering[at], rows.exact[at]
    )


def _ordering(out: OutRows) -> pa.Array:
    return pa.array(out.ordering, mask=~out.has_ordering)


def topic_name(names: TopicNames, topic: Topic) -> str:
    """The name of the Kafka topic that has this role."""
    by_role: Mapping[Topic, str] = {
        Topic.KEYED: names.keyed,
        Topic.DATA: names.data,
        Topic.INDEX: names.index,
        Topic.TOMBSTONES: names.tombstones,
    }
    return by_role[topic]


def outgoing(
    batches: Sequence[EncodedBatch], names: TopicNames, nonce: str, schema_id: str
) -> list[OutgoingMessage]:
    """The batches with their headers, numbered per topic-partition from 0."""
    messages = []
    for batch, header in zip(batches, numbered(batches, nonce, schema_id), strict=True):
        target = TopicPartition(topic_name(names, batch.topic), batch.partition)
        messages.append(OutgoingMessage(target, batch.value, None, header.encode()))
    return messages


def tagged_entry(
    nonce: str,
    consumed: list[Consumed],
    batches: Sequence[EncodedBatch],
    offsets: Sequence[int],
    tagged: TaggedBatch,
    facts: ClaimFacts,
    schema: TableSchema,
) -> TransactionTagged:
    """The transaction's ledger entry; ``offsets``: the delivered offsets of ``batches``, in their order."""
    return TransactionTagged(
        slot=facts.slot,
        nonce=nonce,
        generation=facts.generation,
        terms=facts.terms,
        consumed=consumed,
        produced=produced_ranges(batches, offsets),
        counts=tagged.counts,
        bytes=sum(len(batch.value) for batch in batches),
        schema_id=schema.fingerprint,
    )
