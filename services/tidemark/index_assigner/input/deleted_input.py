"""Stops lanes whose next records were deleted before they were read, by retention or delete-records.

A Kafka client reports an offset out of range once, and for one partition even where several are. So after
such a report the positions of all lanes are compared with their partitions' start offsets:

::

    READ ──out of range──► position below the partition's start? ──no──► READ
                              │ yes: not read meanwhile
                              ▼
                           DOUBTED ──the ledger is read as far as it went then──► STOPPED
                              └──the lane is given up──► (nothing was lost)

A lane does not stop at once, because an out-of-date owner sees the same. Example: owner A is frozen at
offset 100; owner B claims the lane and reads up to 500; retention deletes the first 400 records; A wakes up
and asks for
100. Nothing was lost. B's claim is in the ledger, so A reads the ledger up to its end of that moment: if it
     holds the lane after that, nobody has read the records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from tidemark.epoch_protocol.stopped_lanes import StopReason
from tidemark.index_assigner.errors import InputLostError
from tidemark.index_assigner.input.lane_stops import LaneStops
from tidemark.index_assigner.input.reader import InputReader
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.stream_runtime.kafka.ports import Admin, Isolation, KafkaClient, TopicPartition

_log = logging.getLogger("tidemark.assigner")

LedgerRead: TypeAlias = Callable[[], Callable[[], bool]]
"""Takes the ledger's end now; the function that it returns tells whether the ledger has been read up to
there.
"""


def always_read() -> Callable[[], bool]:
    """A `LedgerRead` that is always true, for tests in which no other owner exists."""
    return lambda: True


def read_by(folds: FoldReader, client: KafkaClient, ledger: TopicPartition) -> LedgerRead:
    """A `LedgerRead` of ``folds``, the reader that shows the lanes' claims to this process."""

    def now() -> Callable[[], bool]:
        admin = client.admin()
        try:
            end = admin.end_offset(ledger, Isolation.READ_UNCOMMITTED)
        finally:
            admin.close()
        return lambda: folds.ledger_position() >= end

    return now


class _Doubt(NamedTuple):
    place: TopicPartition
    position: int
    start: int
    ledger_is_read: Callable[[], bool]


class DeletedInput:
    """Owned by the stage's thread. Lane names are the stage's own."""

    def __init__(self, reader: InputReader, admin: Admin, stops: LaneStops, ledger_read: LedgerRead) -> None:
        self._reader = reader
        self._admin = admin
        self._stops = stops
        self._ledger_read = ledger_read
        self._is_out_of_range = False
        self._doubts: dict[str, _Doubt] = {}

    def out_of_range(self) -> None:
        """The reader reported an offset out of range, of at least one partition."""
        self._is_out_of_range = True

    def forget(self, lanes: Iterable[str]) -> None:
        """Forgets doubts about lanes that are given up, or start anew."""
        for lane in lanes:
            self._doubts.pop(lane, None)

    def follow(self, lanes: Mapping[str, TopicPartition]) -> None:
        """Stops the lanes whose records are certainly deleted. To be called before each read.

        Raises InputLostError when a partition ends before its lane's position; KafkaError when Kafka does not
        answer, and then the next call asks again.
        """
        if self._is_out_of_range:
            self._look(lanes)
            self._is_out_of_range = False
        for lane, doubt in list(self._doubts.items()):
            if doubt.ledger_is_read():
                del self._doubts[lane]
                self._stop(lane, doubt)

    def _look(self, lanes: Mapping[str, TopicPartition]) -> None:
        read: list[TopicPartition] = []
        for lane, place in lanes.items():
            try:
                position = self._reader.position(place)
            except KeyError:
                # The lane is not being read now, so it has no position.
                continue
            start = self._admin.start_offset(place)
            if position < start:
                self._doubts[lane] = _Doubt(place, position, start, self._ledger_read())
                self._reader.remove([place])
                continue
            end = self._admin.end_offset(place, Isolation.READ_UNCOMMITTED)
            if position > end:
                raise _ends_before(place, position, end)
            read.append(place)
        self._reader.again(read)

    def _stop(self, lane: str, doubt: _Doubt) -> None:
        detail = (
            f"{doubt.start - doubt.position} offsets, {doubt.position} to {doubt.start - 1}, were deleted "
            "before they were read (by the topic's retention, or delete-records): the partition starts at "
            f"offset {doubt.start} (its low watermark)"
        )
        self._stops.stop(lane, doubt.place, doubt.position, StopReason.DELETED, detail)
        _log.error("lane %s is stopped at offset %d, the others go on: %s", lane, doubt.position, detail)


def _ends_before(place: TopicPartition, position: int, end: int) -> InputLostError:
    return InputLostError(
        f"{place.topic}[{place.partition}] ends at offset {end}, but was read up to {position}: Kafka lost "
        "the newest records (an unclean leader election), or it is another topic. `tidemark table adopt "
        "--new-ledger` starts over"
    )
