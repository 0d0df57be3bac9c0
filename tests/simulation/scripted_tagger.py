"""An assigner by script: puts tagged rows into data and index topic and says so in the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from testing.kafka import MemoryKafkaClient
from tidemark.epoch_protocol.batches import (
    DATA_COLUMNS,
    FILE_ID,
    INDEX_COLUMNS,
    KEY,
    PARTITION,
    BatchHeader,
    DataOp,
    IndexOp,
    chained_checksum,
    encode_batch,
    with_user_columns,
)
from tidemark.epoch_protocol.entries import (
    Consumed,
    Counts,
    LanesClaimed,
    Produced,
    Stage,
    Topic,
    TransactionTagged,
    encode_entry,
)
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.kafka.ports import TopicPartition, TransactionalProducer

SHARDS = 2
TABLE = "t"
SCHEMA = TableSchema.from_arrow(
    TABLE,
    pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]),
)
Row = Mapping[str, Any]
Tagged = tuple[Row, DataOp, str]
"""(row, what to do, file id)."""
_LANE = "0"
_INDEX_OPS = {
    DataOp.INSERT: IndexOp.UPSERT,
    DataOp.UPDATE: IndexOp.UNCHANGED,
    DataOp.DELETE: IndexOp.DELETE,
}


class ScriptedTagger:
    """The only owner of the only lane. `schema`: of the rows."""

    def __init__(self, client: MemoryKafkaClient, topics: TopicNames, schema: TableSchema = SCHEMA) -> None:
        self._client = client
        self._topics = topics
        self.schema = schema
        self._claim: int | None = None
        self._transactions = 0
        self.generation = 0
        self.consumed = 0

    def claim_anew(self, state: FoldState) -> None:
        """The next transaction claims the lane, under the generation and from the position of the fold."""
        self._claim, self.generation = None, state.generation
        self.consumed = state.committed.keyed_next.get(_LANE, 0)

    def tag(self, rows: Sequence[Tagged], consumed: int | None = None) -> int:
        """One transaction; ``consumed`` positions of `keyed` (default: as many as rows). Returns its ledger
        offset.
        """
        producer = self._client.producer(f"{TABLE}-assign-0")
        producer.init()
        ledger = self._topics.ledger_partition
        if self._claim is None:
            claim = LanesClaimed(Stage.ASSIGN, [_LANE], self.generation, 0, "script")
            producer.begin()
            delivery = producer.produce(ledger, encode_entry(claim))
            producer.flush()
            producer.commit()
            self._claim = delivery.offset
        self._transactions += 1
        nonce = f"n{self._transactions}"
        end = self.consumed + (len(rows) if consumed is None else consumed)
        producer.begin()
        produced = [
            self._produce(producer, Topic.DATA, self._topics.data, nonce, data_batch(rows, self.schema)),
            self._produce(producer, Topic.INDEX, self._topics.index, nonce, index_batch(rows)),
        ]
        entry = TransactionTagged(
            slot=0,
            nonce=nonce,
            generation=self.generation,
            terms={_LANE: self._claim},
            consumed=[Consumed(_LANE, self.consumed, end)],
            produced=produced if rows else [],
            counts=Counts(input=end - self.consumed, updates=len(rows)),
            bytes=100,
            schema_id=self.schema.fingerprint,
        )
        delivery = producer.produce(ledger, encode_entry(entry))
        producer.flush()
        producer.commit()
        producer.close()
        self.consumed = end
        return delivery.offset or 0

    def _produce(
        self, producer: TransactionalProducer, role: Topic, topic: str, nonce: str, batch: pa.Table
    ) -> Produced:
        value = encode_batch(batch).to_pybytes()
        header = BatchHeader(nonce, 0, batch.num_rows, self.schema.fingerprint)
        delivery = producer.produce(TopicPartition(topic, 0), value, None, header.encode())
        producer.flush()
        offset = delivery.offset or 0
        return Produced(role, 0, offset, offset, 1, batch.num_rows, chained_checksum([value]))


def data_batch(rows: Sequence[Tagged], of_rows: TableSchema = SCHEMA) -> pa.Table:
    """Rows as an assigner sends them to the data topic."""
    schema = with_user_columns(DATA_COLUMNS, of_rows.arrow)
    records = [
        {
            KEY: row["id"],
            PARTITION: row["day"],
            FILE_ID: file_id,
            "_tm_ordering": row["ts"],
            "_tm_op": int(op),
            **({} if op is DataOp.DELETE else row),
        }
        for row, op, file_id in rows
    ]
    return pa.Table.from_pylist(records, schema=schema)


def index_batch(rows: Sequence[Tagged]) -> pa.Table:
    """Rows as an assigner sends them to the index topic; of a key that moves, the insert comes last."""
    shards = record_index_shard(pa.array([row["id"] for row, _, _ in rows], pa.string()), SHARDS)
    records = [
        {
            KEY: row["id"],
            "_tm_shard": int(shard),
            PARTITION: row["day"],
            FILE_ID: file_id,
            "_tm_ordering": row["ts"],
            "_tm_exact": True,
            "_tm_op": int(_INDEX_OPS[op]),
        }
        for (row, op, file_id), shard in zip(rows, shards, strict=True)
    ]
    return pa.Table.from_pylist(records, schema=INDEX_COLUMNS)
