"""Reads partitions of input topics: most of them with one consumer, suspect ones in a child process.

Both give the stage the same messages. A partition is read in the child process (`careful_lanes`) when

* the coordinator calls its lane suspect (`commit_coordinator.domain.reader_deaths`), or
* it stopped at a deadly record before: the record behind the skipped ones may be deadly as well.

When the child process has found nothing deadly, the partition is read with the others again. A suspect
partition without a record to read never goes to the child process: its readers cannot have died of a
record, and the coordinator's count of deaths stays as long as the idle lane's position does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidemark.errors import ErrorKind
from tidemark.index_assigner.input.careful_lanes import CarefulLanes, Found
from tidemark.stream_runtime.kafka.errors import KafkaError
from tidemark.stream_runtime.kafka.ports import Admin, Isolation, KafkaClient, Message, TopicPartition


class DeadlyRecordError(KafkaError):
    """Processes that read on at the offset die, or never end (``hangs``).

    The partition is read no further; the others go on.
    """

    kind = ErrorKind.CORRUPT

    def __init__(self, place: TopicPartition, offset: int, hangs: bool = False) -> None:
        self.place, self.offset, self.hangs = place, offset, hangs
        shown = f"{place.topic}[{place.partition}]"
        super().__init__(
            f"{shown}: two processes that decoded offset {offset} alone did not end, and were ended: a "
            "defect of Tidemark's, which `tidemark input skip` passes over"
            if hangs
            else f"{shown}: two processes that read offset {offset} alone died of it. "
            "Most likely it unpacks to more memory than there is: with more it may be read after a restart"
        )


class InputReader:
    """Owned by the stage's thread."""

    def __init__(self, client: KafkaClient, admin: Admin, careful: CarefulLanes | None = None) -> None:
        """``admin`` is not closed here. Without ``careful`` suspect partitions are read like all others."""
        self._reader = client.partition_reader(Isolation.READ_COMMITTED, follows=True)
        self._admin = admin
        self._careful = careful
        self._apart: dict[TopicPartition, int] = {}
        self._deadly: set[TopicPartition] = set()

    def add(self, positions: Mapping[TopicPartition, int], suspects: Collection[TopicPartition] = ()) -> None:
        """Reads each partition from its offset on, a real one (no logical one such as "earliest").

        A partition that is read already goes on at the new offset.
        """
        careful = self._careful
        if careful is None:
            self._reader.add(positions)
            return
        apart = [
            place
            for place, at in positions.items()
            if (place in suspects or place in self._deadly) and self._has_more(place, at)
        ]
        self._reader.add({place: at for place, at in positions.items() if place not in apart})
        self._reader.remove(apart)
        for place in positions:
            if self._apart.pop(place, None) is not None:
                careful.forget(place)
        for place in apart:
            self._apart[place] = positions[place]
            careful.start(place, positions[place])

    def _has_more(self, place: TopicPartition, position: int) -> bool:
        try:
            return position < self._admin.end_offset(place, Isolation.READ_COMMITTED)
        except KafkaError:
            return True

    def remove(self, places: Iterable[TopicPartition]) -> None:
        """Stops reading the partitions. Partitions that are not read are ignored."""
        together = []
        for place in places:
            if self._apart.pop(place, None) is None:
                together.append(place)
            elif self._careful is not None:
                self._careful.forget(place)
        self._reader.remove(together)

    def again(self, places: Iterable[TopicPartition]) -> None:
        """Adds the partitions anew at their present positions.

        A Kafka client reports once that an offset is out of range, and then reads no more of that partition
        until it is added anew. Partitions in the child process need nothing: it makes new clients itself.
        """
        together = [place for place in places if place not in self._apart]
        self._reader.add({place: self._reader.position(place) for place in together})

    def poll(self, max_messages: int, timeout_s: float, max_bytes: int) -> list[Message]:
        """Returns messages, as `PartitionReader.poll`: from the child process first, if it has any.

        Raises DeadlyRecordError when the child process found a deadly record, and what `PartitionReader.poll`
        raises.
        """
        found = self._careful.found() if self._careful is not None and self._apart else None
        if found is not None:
            return self._take(found)
        return self._reader.poll(max_messages, timeout_s, max_bytes)

    def _take(self, found: Found) -> list[Message]:
        if found.error is not None:
            raise found.error
        if found.is_deadly:
            self._apart[found.place] = found.next
            self._deadly.add(found.place)
            raise DeadlyRecordError(found.place, found.next, found.hangs)
        if found.is_over:
            del self._apart[found.place]
            self._deadly.discard(found.place)
            self._reader.add({found.place: found.next})
            return []
        self._apart[found.place] = found.messages[-1].offset + 1
        return list(found.messages)

    def position(self, place: TopicPartition) -> int:
        """The offset of the next message of the partition. Raises KeyError when it is not read."""
        apart = self._apart.get(place)
        return self._reader.position(place) if apart is None else apart

    def read_to(self, place: TopicPartition) -> int:
        """The position: no record below it is left to read. 0 for a partition that is not read."""
        try:
            return self.position(place)
        except KeyError:
            return 0

    def close(self) -> None:
        """Closes the consumer, and ends the child process if there is one."""
        if self._careful is not None:
            self._careful.close()
        self._reader.close()
