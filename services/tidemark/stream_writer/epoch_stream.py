"""The streaming query that wakes the writer: Spark's Kafka source on the decisions topic, `foreachBatch`.

A batch is only the sign that the coordinator decided something; what is to be written the coordinator says.
Each batch stays until one epoch was written and its report taken, or `stop` is set. So between two epochs a
batch already waits on the coordinator (it was started by the entry that committed the last epoch), and the
query's own work, about 70 ms a batch, happens while nothing is planned (docs/adr/0003-writer-engine.md).

No epoch is missed: the query rests only after a report was taken, and whatever the coordinator does then
(commit, void, or a successor's claim) is an entry of the topic, which starts the next batch. Spark's
checkpoint is thrown away at each start, and the topic read from its beginning: its first entry, at least the
coordinator's claim, starts the first batch.
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
"""Writes one epoch, or returns because the event is set."""


class EpochStream:
    """One streaming query. `run` is called once, by the thread that owns the session."""

    def __init__(
        self,
        engine: SparkEngine,
        kafka: Mapping[str, str],
        topic: str,
        checkpoint: Path,
        write_one: WriteOne,
    ) -> None:
        """`kafka` are settings of the Java client, `topic` the table's decisions."""
        self._engine = engine
        self._kafka = kafka
        self._topic = topic
        self._checkpoint = checkpoint
        self._write_one = write_one
        self._failure: BaseException | None = None

    def run(self, stop: threading.Event) -> None:
        """Returns after `stop` was set and the running epoch is finished. Raises what a batch raised, or
        EngineLostError when the query ended by itself.
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
                # Spark would wrap it into text; the main thread raises it as it is.
                self._failure = error
                raise

        reader = self._engine.session.readStream.format("kafka").option("subscribe", self._topic)
        for key, value in self._kafka.items():
            reader = reader.option(f"kafka.{key}", value)
        source = (
            reader.option("kafka.isolation.level", "read_committed")
            # A batch ends with a transaction's marker: by default the reader waits 500 ms for a record there.
            .option("kafka.fetch.max.wait.ms", "10")
            .option("startingOffsets", "earliest")
            # Entries below a snapshot are deleted; the coordinator knows what they said.
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
