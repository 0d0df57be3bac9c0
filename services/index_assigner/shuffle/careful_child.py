"""The process that reads suspect lanes, and that may die of what it reads (`python -m` this module).

It fetches one record batch at a time and decodes every record before it hands it to its parent, under a limit
of memory. What comes out at the other end of the pipe has ended nobody.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from hudi_format.schema import TableSchema
from hudi_format.storage.locate import open_storage
from hudi_format.table_config import read_table_config
from index_assigner.errors import InputWaitsError
from index_assigner.shuffle.careful_frames import Answer, Kind, Setup, Task, read_frame, write_frame
from index_assigner.shuffle.configured_keyer import configured_keyer
from index_assigner.shuffle.keyed_rows import RecordKeyer
from stream_runtime.clock import SystemClock
from stream_runtime.config import load_config
from stream_runtime.kafka.confluent.consumer import AssignedConsumer
from stream_runtime.kafka.errors import KafkaError, UnreadableBatchError
from stream_runtime.kafka.ports import Message, TopicPartition
from stream_runtime.platform.spare_memory import limit_own_memory

_MESSAGES: Final = 500
_BYTES: Final = 4 << 20
_POLL_S: Final = 0.2
_SILENT_POLLS_MAX: Final = 50
_ROOM_BYTES: Final = 64 << 20
_NO_ROOM: Final = Answer(Kind.FAILED, text="there is too little memory for a process beside the assigner")


class _Reading:
    """One task."""

    def __init__(self, consumer: AssignedConsumer, keyer: RecordKeyer, task: Task, out: IO[bytes]) -> None:
        self._consumer, self._keyer, self._out = consumer, keyer, out
        self._place = TopicPartition(task.topic, task.partition)
        self._next, self._left_bytes, self._alone = task.first, task.bytes_max, task.records_alone

    def run(self) -> Answer:
        """The last answer of the task."""
        self._consumer.check_exists([self._place])
        self._consumer.assign({self._place: self._next})
        silent = 0
        while self._left_bytes > 0 and silent < _SILENT_POLLS_MAX:
            alone = self._alone > 0
            messages, ends, failure = self._consumer.poll(1 if alone else _MESSAGES, _POLL_S, _BYTES)
            if messages:
                silent = 0
                self._take(messages, alone)
                continue
            if isinstance(failure, UnreadableBatchError):
                return Answer(Kind.UNREADABLE, failure.base_offset, str(failure))
            if failure is not None:
                return Answer(Kind.FAILED, text=str(failure))
            if self._place in ends:
                return Answer(Kind.DONE, max(self._next, ends[self._place]))
            silent += 1
        if silent:
            return Answer(Kind.FAILED, text="nothing came")
        return Answer(Kind.DONE, self._next)

    def _take(self, messages: Sequence[Message], alone: bool) -> None:
        if alone:
            # Nothing is fetched while it is decoded: who dies now died of this record.
            self._consumer.unassign()
            write_frame(self._out, Answer(Kind.DECODING, messages[0].offset))
            self._alone -= 1
        self._keyer.key_records(messages)
        write_frame(self._out, Answer.taken(messages))
        self._left_bytes -= sum(len(each.value or b"") + len(each.key or b"") for each in messages)
        self._next = messages[-1].offset + 1
        if alone:
            self._consumer.assign({self._place: self._next})


def _has_room() -> bool:
    """Whether an ordinary batch can be read at all: who has no memory would die of any record."""
    try:
        bytearray(_ROOM_BYTES)
    except MemoryError:
        return False
    return True


def main() -> None:
    """Works until its parent is gone."""
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
        consumer = AssignedConsumer(setup.settings, "careful")
        try:
            answer = _Reading(consumer, keyer, task, out).run() if _has_room() else _NO_ROOM
        except (KafkaError, InputWaitsError) as error:
            answer = Answer(Kind.FAILED, text=str(error))
        except MemoryError:
            os.abort()
        finally:
            consumer.close()
        write_frame(out, answer)


if __name__ == "__main__":
    main()
