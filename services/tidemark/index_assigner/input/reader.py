"""Reads partitions of input topics: most of them together, suspect ones apart (`careful_lanes`).

To a stage both look alike. A partition is suspect when its lane is
(`commit_coordinator.domain.reader_deaths`), or when it was deadly before: behind what was skipped the next
record may be deadly as well. Once nothing was found in it, it is read with the others. One without a record
to read killed nobody: an idle lane's position stays for ever, and so does what was counted there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidemark.errors import ErrorKind
from tidemark.index_assigner.input.careful_lanes import CarefulLanes, Found
from tidemark.stream_runtime.kafka.errors import KafkaError
from tidemark.stream_runtime.kafka.ports import Admin, Isolation, KafkaClient, Message, TopicPartition


class DeadlyRecordError(KafkaError):
    """Who reads on at the offset dies, or never ends (``hangs``). The partition is read no further; the
    others go on.
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
        """``admin`` stays the caller's. Without ``careful`` suspects are read like all others."""
        self._reader = client.partition_reader(Isolation.READ_COMMITTED)
        self._admin = admin
        self._careful = careful
        self._apart: dict[TopicPartition, int] = {}
        self._deadly: set[TopicPartition] = set()

    def add(self, positions: Mapping[TopicPartition, int], suspects: Collection[TopicPartition] = ()) -> None:
        """Adds partitions at offsets (real ones); those that it has already go on there."""
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
        """Reads them no further; unknown ones are fine."""
        together = []
        for place in places:
            if self._apart.pop(place, None) is None:
                together.append(place)
            elif self._careful is not None:
                self._careful.forget(place)
        self._reader.remove(together)

    def again(self, places: Iterable[TopicPartition]) -> None:
        """Reads these on from where they are: a client says once that an offset is out of range, and reads no
        more of its partition. What is read apart goes on by itself.
        """
        together = [place for place in places if place not in self._apart]
        self._reader.add({place: self._reader.position(place) for place in together})

    def poll(self, max_messages: int, timeout_s: float, max_bytes: int) -> list[Message]:
        """As `PartitionReader.poll`. Raises DeadlyRecordError as well."""
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
        """As `PartitionReader.position`. Raises KeyError for one that is not read."""
        apart = self._apart.get(place)
        return self._reader.position(place) if apart is None else apart

    def close(self) -> None:
        """Ends the child, if there is one."""
        if self._careful is not None:
            self._careful.close()
        self._reader.close()
