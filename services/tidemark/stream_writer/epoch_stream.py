"""The streaming query that drives the writer: Spark's Kafka source on the decisions, with `foreachBatch`.

A batch only means that the coordinator decided something; its entries are not read. The writer asks the
coordinator what to write:

1. An entry on the topic starts a batch. `on_batch` asks the coordinator for an attempt, and waits.
2. It writes the attempt and reports it. The batch ends once the coordinator took a report, or `stop` is set.
3. The coordinator commits the epoch. That is an entry again, so the next batch begins to wait before the next
   epoch is planned. The query's own work, about 70 ms for a batch, costs no time of an epoch
   (docs/adr/0003-writer-engine.md).

No epoch is missed: between batches a report was taken, and whatever the coordinator does next (commit, void,
or the claim of a successor) is an entry that starts a batch. Each start deletes Spark's checkpoint and reads
the topic from its beginning. There is at least the coordinator's claim, which starts the first batch.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tidemark.stream_writer.errors import EngineLostError
from tidemark.stream_writer.job import SparkEngine

_CHECK_S: Final = 0.5
_log: Final = logging.getLogger("tidemark.writer")

WriteOne = Callable[[threading.Event], None]
"""Writes one epoch, or returns early because the event is set."""


class EpochStream:
    """The streaming query of one writer. `run` is called once, by the thread that owns the session."""

    def __init__(
        self,
        engine: SparkEngine,
        kafka: Mapping[str, str],
        topic: str,
        checkpoint: Path,
        write_one: WriteOne,
    ) -> None:
        """`kafka`: settings of Kafka's Java client. `topic`: the table's decisions."""
        self._engine = engine
        self._kafka = kafka
        self._topic = topic
        self._checkpoint = checkpoint
        self._write_one = write_one
        self._failure: BaseException | None = None

    def run(self, stop: threading.Event) -> None:
        """Runs until `stop` is set and the running epoch is finished. Raises the error that a batch raised,
        or EngineLostError if the query ended by itself.
        """
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        query = self._start(stop)
        while not stop.wait(_CHECK_S):
            if self._failure is not None or not _is_active(query):
                break
        if self._failure is not None:
            raise self._failure
        if not stop.is_set():
            raise EngineLostError(f"the streaming query on {self._topic} ended: {_reason(query)}")
        query.stop()

    def _start(self, stop: threading.Event) -> Any:
        def on_batch(_: Any, batch: int) -> None:
            try:
                self._write_one(stop)
            except BaseException as error:
                # Spark would only pass its text on; so `run` raises the exception itself.
                self._failure = error
                raise

        reader = self._engine.session.readStream.format("kafka").option("subscribe", self._topic)
        for key, value in self._kafka.items():
            reader = reader.option(f"kafka.{key}", value)
        source = (
            reader.option("kafka.isolation.level", "read_committed")
            # The last offset of a batch is a transaction marker; by default the reader would wait 500 ms
            # there for a record.
            .option("kafka.fetch.max.wait.ms", "10")
            .option("startingOffsets", "earliest")
            # The coordinator deletes entries below a snapshot. The writer does not need them.
            .option("failOnDataLoss", "false")
            .load()
        )
        writer = source.writeStream.foreachBatch(on_batch).queryName("tidemark-epochs")
        return writer.option("checkpointLocation", str(self._checkpoint)).start()


def _is_active(query: Any) -> bool:
    try:
        return bool(query.isActive)
    except Exception as error:
        raise EngineLostError(f"the Spark session is gone: {error}") from error


def _reason(query: Any) -> str:
    try:
        return str(query.exception())
    except Exception as error:
        return str(error)
