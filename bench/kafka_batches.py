"""Batches in Kafka, so that both sides of the comparison start at "the batch is in Kafka"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PARTITIONS: Final = 4
_FLUSH_TIMEOUT_S: Final = 60.0

Ranges = Mapping[int, tuple[int, int]]


class BatchTopic:
    """A topic of JSON records; `publish` tells where a batch lies, `frame` reads exactly that with Spark."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            created.result(timeout=_FLUSH_TIMEOUT_S)
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
        self._producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
        self._next = dict.fromkeys(range(PARTITIONS), 0)

    def publish(self, rows: pa.Table) -> Ranges:
        """Produces the rows round robin and waits until all are acknowledged. Returns offsets [from, to)."""
        encode = msgspec.json.Encoder().encode
        first = dict(self._next)
        for number, row in enumerate(rows.to_pylist()):
            partition = number % PARTITIONS
            self._producer.produce(self._topic, encode(row), partition=partition)
            self._next[partition] += 1
        if self._producer.flush(_FLUSH_TIMEOUT_S):
            raise RuntimeError(f"{self._topic}: batch not acknowledged within {_FLUSH_TIMEOUT_S} s")
        return {partition: (first[partition], self._next[partition]) for partition in first}

    def frame(self, spark: Any, ranges: Ranges, schema: pa.Schema) -> Any:
        """The batch as a Spark frame with the columns of `schema`."""
        names = {"string": "string", "int64": "bigint", "int32": "int", "double": "double"}
        ddl = ", ".join(f"{each.name} {names[str(each.type)]}" for each in schema)
        offsets = [{self._topic: {str(part): ends[side] for part, ends in ranges.items()}} for side in (0, 1)]
        source = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", self._topic)
            .option("startingOffsets", json.dumps(offsets[0]))
            .option("endingOffsets", json.dumps(offsets[1]))
            .load()
        )
        return source.selectExpr(f"from_json(cast(value as string), '{ddl}') as row").select("row.*")
