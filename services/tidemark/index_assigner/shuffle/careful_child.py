"""The child process that reads suspect lanes, and may die of a record (`python -m` this module).

It fetches and decodes every record, under a limit of memory, before it sends the record to its parent. So
every record that the parent gets is harmless. After a death it fetches one record batch, closes its Kafka
client, and decodes the records one by one, so that the parent can tell which record ends it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

from tidemark.config import load_config
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.index_assigner.input.careful_frames import (
    Answer,
    CarefulSettings,
    Kind,
    Setup,
    Task,
    read_frame,
    write_frame,
)
from tidemark.index_assigner.shuffle.configured_keyer import configured_keyer
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.record_formats.errors import InputWaitsError
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent.consumer import AssignedConsumer
from tidemark.stream_runtime.kafka.errors import KafkaError, UnreadableBatchError
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone
from tidemark.stream_runtime.platform.child import end_with_parent
from tidemark.stream_runtime.platform.spare_memory import limit_own_memory

_MESSAGES: Final = 500
_BYTES: Final = 4 << 20
_POLL_S: Final = 0.2
_SILENT_POLLS_MAX: Final = 50
_ROOM_BYTES: Final = 64 << 20
_NO_ROOM: Final = Answer(Kind.FAILED, text="there is too little memory for a process beside the assigner")


class _Reading:
    """Carries out one task."""

    def __init__(self, settings: CarefulSettings, keyer: RecordKeyer, task: Task, out: IO[bytes]) -> None:
        self._settings, self._keyer, self._out = settings, keyer, out
        self._place = TopicPartition(task.topic, task.partition)
        self._next, self._left_bytes, self._alone = task.first, task.bytes_max, task.records_alone

    def run(self) -> Answer:
        """Works on the task, and returns the last answer to it."""
        while self._alone > 0 and self._left_bytes > 0:
            fetched = self._fetched_alone()
            if isinstance(fetched, Answer):
                return fetched
            for message in fetched:
                write_frame(self._out, Answer(Kind.DECODING, message.offset))
                self._take([message])
            self._alone -= len(fetched)
        return self._read_ahead()

    def _fetched_alone(self) -> Sequence[Message] | Answer:
        """Returns the records of the next batch, after the client was closed; or why there are none.

        A Kafka client fetches ahead whatever its settings are. Only when it is closed is it certain that a
        death from then on is due to these records, and not to the batch behind them.
        """
        consumer = self._consumer(self._settings.alone)
        try:
            fetched = self._begun(consumer) or self._polled(consumer)
            if not isinstance(fetched, Answer):
                write_frame(self._out, Answer(Kind.FETCHED))
            return fetched
        finally:
            consumer.close()

    def _read_ahead(self) -> Answer:
        consumer = self._consumer(self._settings.ahead)
        try:
            if (failed := self._begun(consumer)) is not None:
                return failed
            while self._left_bytes > 0:
                fetched = self._polled(consumer)
                if isinstance(fetched, Answer):
                    return fetched
                self._take(fetched)
            return Answer(Kind.DONE, self._next)
        finally:
            consumer.close()

    def _consumer(self, settings: dict[str, Any]) -> AssignedConsumer:
        return AssignedConsumer(settings, "careful")

    def _begun(self, consumer: AssignedConsumer) -> Answer | None:
        """Starts fetching, unless there is too little memory for an ordinary batch; then the answer."""
        consumer.check_exists([self._place])
        if not _has_room():
            return _NO_ROOM
        write_frame(self._out, Answer(Kind.READING))
        consumer.assign({self._place: self._next})
        return None

    def _polled(self, consumer: AssignedConsumer) -> Sequence[Message] | Answer:
        """Returns the next records, or the answer that says why there are none."""
        for _ in range(_SILENT_POLLS_MAX):
            messages, ends, failure = consumer.poll(_MESSAGES, _POLL_S, _BYTES)
            if messages:
                return messages
            if isinstance(failure, UnreadableBatchError):
                return Answer(Kind.UNREADABLE, failure.base_offset, str(failure))
            if failure is not None:
                return Answer(Kind.FAILED, text=str(failure))
            if self._place in ends:
                return Answer(Kind.DONE, max(self._next, ends[self._place]))
        return Answer(Kind.FAILED, text="nothing came")

    def _take(self, messages: Sequence[Message]) -> None:
        """Decodes the messages and sends them to the parent, as many at a time as the keyer takes.

        Raises InputWaitsError at the first that cannot be decoded now; those before it have been sent.
        """
        left = messages
        while left:
            done = left[: self._keyer.key_records(left).records]
            write_frame(self._out, Answer.taken(done))
            self._left_bytes -= sum(len(one.value or b"") + len(one.key or b"") for one in done)
            self._next = done[-1].offset + 1
            left = left[len(done) :]


def _has_room() -> bool:
    """Whether there is memory for an ordinary batch: a process without it would die of any record.

    The block is written to, because the kernel provides memory only when it is written.
    """
    try:
        return len(b"\1" * _ROOM_BYTES) == _ROOM_BYTES
    except MemoryError:
        return False


def main() -> None:
    """Carries out tasks until the parent is gone."""
    end_with_parent()
    use_arrow_alone()
    source, out = sys.stdin.buffer, sys.stdout.buffer
    setup = read_frame(source, Setup)
    if setup is None:
        return
    limit_own_memory(setup.memory_bytes)
    config = load_config(Path(setup.config), os.environ)
    storage = open_storage(config.table.path)
    schema = TableSchema.from_avro(config.table.schema.read_text(encoding="utf-8"), config.table.name)
    keyer = configured_keyer(
        config, storage, read_table_config(storage), schema, setup.num_shards, setup.lanes, SystemClock()
    )
    while (task := read_frame(source, Task)) is not None:
        try:
            answer = _Reading(setup.settings, keyer, task, out).run()
        except BrokenPipeError:
            return
        except (KafkaError, InputWaitsError, OSError) as error:
            answer = Answer(Kind.FAILED, text=str(error))
        except Exception:
            # Memory ran out, or decoding raised an error that is handled nowhere. An ordinary reader would
            # end here as well. This process dies of a signal instead, which its parent counts as a death.
            traceback.print_exc()
            os.abort()
        write_frame(out, answer)


if __name__ == "__main__":
    main()
