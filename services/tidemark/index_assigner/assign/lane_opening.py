"""Completes a lane's index after its claim was read back (ARCHITECTURE.md, "What counts", Claim).

1. Load the metadata table. This happens after the fold was read, so it shows every epoch that the fold calls
   committed.
2. Read the tombstones of committed transactions that RocksDB does not have yet.
3. Read the index and tombstone rows of the counting transactions that no committed epoch covers, all of them,
   and check them against their ledger entries.

Rows of transactions that were rewound, or never counted, are ignored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final

from tidemark.epoch_protocol.entries import Produced, Topic
from tidemark.epoch_protocol.lanes import assign_lane
from tidemark.epoch_protocol.seen import Known
from tidemark.epoch_protocol.state import CountedTagged, FoldState
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.index_assigner.assign.opening_chunks import OpeningChunks
from tidemark.index_assigner.index.errors import IndexStopsError, SnapshotBehindError
from tidemark.index_assigner.index.ports import KeyIndex
from tidemark.ledger_client.named_batches import NamedBatch, NamedRange, collect_named, covering_range
from tidemark.ledger_client.own_messages import header_of, rows_of
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.errors import OffsetOutOfRangeError
from tidemark.stream_runtime.kafka.ports import Isolation, KafkaClient, TopicPartition
from tidemark.stream_runtime.retry import Deadline

_POLL_MESSAGES_MAX: Final = 500
_READ_TIMEOUT_S: Final = 30.0
_LOADS_MAX: Final = 5
_LOAD_WAIT_S: Final = 0.1


class LaneOpener:
    """Opens lanes, on the loop's thread. Keeps its Kafka clients between calls, until `close`."""

    def __init__(
        self,
        index: KeyIndex,
        client: KafkaClient,
        topics: TopicNames,
        load_snapshot: Callable[[], MetadataTableSnapshot],
        clock: Clock,
        ordered: bool,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
        stop: threading.Event | None = None,
    ) -> None:
        """``waiting``: in its block the lanes' shards are filled or caught up. ``stop``: is set when the
        process is told to end.
        """
        self._waiting, self._stop = waiting, stop or threading.Event()
        self._index = index
        self._client = client
        self._topics = topics
        self._load_snapshot = load_snapshot
        self._clock = clock
        self._ordered = ordered
        self._ranges = client.range_reader()
        self._admin = client.admin()
        self._chunks = OpeningChunks()

    def open(self, lanes: Sequence[int], state: FoldState) -> None:
        """Opens the lanes: afterwards each answers as its former owner would, given ``state``.

        Raises errors of kind RETRYABLE or CONFLICT when it is not possible now: call again, with the fold's
        state of that time. Raises IncompleteRangeError, OffsetOutOfRangeError when batches that a counting
        entry names are torn or gone, IndexRebuiltError when the number of shards changed, IndexStopsError
        between two reads when the process is told to end.
        """
        with self._waiting():
            self._open_shards(lanes, state.known())
        for lane in lanes:
            if self._ordered:
                self._load_tombstones(lane, state)
            self._chunks = OpeningChunks()
            for chunk in self._chunks.of(state.tagged, partial(_rows, lane)):
                self._check_stop()
                self._load_counted(lane, chunk)

    def close(self) -> None:
        """Closes the Kafka clients."""
        self._ranges.close()
        self._admin.close()

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise IndexStopsError("the assigner ends: it opens no lanes any more")

    def _open_shards(self, lanes: Sequence[int], known: Known) -> None:
        for attempt in range(1, _LOADS_MAX + 1):
            snapshot = self._load_snapshot()
            try:
                for lane in lanes:
                    self._check_stop()
                    self._index.open_lane(lane, snapshot, known)
                return
            except SnapshotBehindError:
                if attempt == _LOADS_MAX:
                    raise
                self._clock.sleep(_LOAD_WAIT_S)

    def _load_tombstones(self, lane: int, state: FoldState) -> None:
        """Reads the tombstones of committed transactions that RocksDB does not have yet.

        Waits for open Kafka transactions in front of the last of them, which hide what is behind them.
        """
        partition = TopicPartition(self._topics.tombstones, lane)
        committed = state.tombstones.of(assign_lane(lane))
        end = committed.end
        if end is None:
            if state.tombstones.whole:
                return
            # The fold's ranges are not complete: an earlier version kept none. Then everything counts that
            # is in front of the first tombstones that no committed epoch covers.
            end = _first_uncommitted(state.tagged, lane)
            end = self._admin.end_offset(partition, Isolation.READ_UNCOMMITTED) if end is None else end
        position = max(self._index.tombstones_position(lane), self._admin.start_offset(partition))
        if position >= end:
            return
        deadline = Deadline(self._clock, _READ_TIMEOUT_S)
        reader = self._client.partition_reader(Isolation.READ_COMMITTED)
        try:
            reader.assign({partition: position})
            while (position := reader.position(partition)) < end:
                self._check_stop()
                deadline.check(f"reading {partition.topic}[{lane}] up to offset {end}")
                try:
                    messages = reader.poll(_POLL_MESSAGES_MAX, 0.1)
                except OffsetOutOfRangeError:
                    start = self._admin.start_offset(partition)
                    if start <= position:
                        raise
                    # The broker deleted tombstones whose time had ended; the next ones are read.
                    reader.assign({partition: start})
                    continue
                batches = [
                    rows_of(message)
                    for message in messages
                    if message.offset < end and committed.holds(message.offset, header_of(message).nonce)
                ]
                self._index.load_tombstones(lane, batches, min(reader.position(partition), end))
        finally:
            reader.close()

    def _load_counted(self, lane: int, chunk: Sequence[CountedTagged]) -> None:
        index = self._read(Topic.INDEX, self._topics.index, lane, chunk)
        tombstones = self._read(Topic.TOMBSTONES, self._topics.tombstones, lane, chunk)
        self._chunks.was_read(named.batch for named in (*index, *tombstones))
        for counted in chunk:
            gone = _of(counted, Topic.TOMBSTONES, lane)
            self._index.load_counted(
                lane,
                counted.offset,
                [named.batch for named in index if named.order == counted.offset],
                [named.batch for named in tombstones if named.order == counted.offset],
                gone.last + 1 if gone is not None else None,
            )

    def _read(self, topic: Topic, name: str, lane: int, chunk: Sequence[CountedTagged]) -> list[NamedBatch]:
        ranges = [
            NamedRange(counted.entry.nonce, counted.offset, produced)
            for counted in chunk
            if (produced := _of(counted, topic, lane)) is not None
        ]
        if not ranges:
            return []
        wanted = covering_range(TopicPartition(name, lane), ranges)
        messages = self._ranges.read(wanted.topic_partition, wanted.first, wanted.last, _READ_TIMEOUT_S)
        return collect_named(messages, ranges)


def _of(counted: CountedTagged, topic: Topic, lane: int) -> Produced | None:
    for produced in counted.entry.produced:
        if produced.topic is topic and produced.partition == lane:
            return produced
    return None


def _first_uncommitted(tagged: Sequence[CountedTagged], lane: int) -> int | None:
    parts = (_of(counted, Topic.TOMBSTONES, lane) for counted in tagged)
    return next((part.first for part in parts if part is not None), None)


def _rows(lane: int, counted: CountedTagged) -> int:
    """The rows that the transaction has in the lane's index and tombstones."""
    parts = (_of(counted, topic, lane) for topic in (Topic.INDEX, Topic.TOMBSTONES))
    return sum(part.records for part in parts if part is not None)
