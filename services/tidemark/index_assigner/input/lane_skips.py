"""Orders to move a stopped lane past what it stands at, a record batch or what was deleted: the owner's part.

::

    ordered ──its end is found──► ready ──in a transaction──► (lane goes on) ──it counts──► the order ends
                                                                 │ it does not count
                                                                 └► the lane stands still again, and so on

Finding the end reads from Kafka and takes seconds, and hours for a batch of many records whose readers die.
So a thread for each stopped lane does it, and the process does not wait for it when it ends; the other lanes
go on meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane, StopReason
from tidemark.index_assigner.input.lane_stops import LaneStops
from tidemark.record_formats.errors import SetupError
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.stream_runtime.kafka.ports import KafkaClient, Message, TopicPartition

_log = logging.getLogger("tidemark.assigner")
LastToSkip = Callable[[TopicPartition, int], int]
"""(partition, offset at which it stands) -> the last offset to be skipped."""
_RESULTS_MAX: Final = 100


class LaneSkips:
    """Owned by the stage's thread."""

    def __init__(self, stops: LaneStops, last_of_batch: LastToSkip, last_deleted: LastToSkip) -> None:
        self._stops = stops
        self._last_of_batch = last_of_batch
        self._last_deleted = last_deleted
        self._searches: dict[tuple[str, int, StopReason], Future[int]] = {}
        self._ready: dict[str, SkipResult] = {}
        self._results: dict[str, SkipResult] = {}

    def follow(self, orders: Sequence[SkipOrder]) -> None:
        """What the coordinator wants now. Orders of lanes that do not stand at the offset are passed over."""
        for order in orders:
            stopped = self._stops.get(order.lane)
            if stopped is None or stopped.offset != order.offset or order.lane in self._ready:
                continue
            # By what is looked for: who asks again, since it took long, gets what was found meanwhile.
            wanted = (order.lane, order.offset, stopped.reason)
            if wanted not in self._searches:
                place = TopicPartition(stopped.topic, stopped.partition)
                is_deleted = stopped.reason is StopReason.DELETED
                search = self._last_deleted if is_deleted else self._last_of_batch
                self._searches[wanted] = in_background(search, place, order.offset)
            if self._searches[wanted].done():
                self._found(order, self._searches.pop(wanted))

    def _found(self, order: SkipOrder, search: Future[int]) -> None:
        try:
            result = SkipResult(order.id, order.offset, search.result())
            self._ready[order.lane] = result
            _log.warning("lane %s moves past offsets %d to %d, as asked", order.lane, *result[1:3])
        except Exception as error:
            # Kafka does not answer, or the child cannot be started: whoever asks may ask again.
            result = SkipResult(
                order.id, order.offset, order.offset, f"how far to skip is not known: {error}"
            )
        self._results[order.id] = result
        while len(self._results) > _RESULTS_MAX:
            del self._results[next(iter(self._results))]

    def waiting(self) -> list[str]:
        """Lanes that the next transaction is to move."""
        return list(self._ready)

    def take(self, lane: str) -> tuple[SkipResult, Message, Refusal] | None:
        """The range that a transaction is to consume now, the record that stands for it, and why it is
        refused (at position 0); None when there is none. The lane stands still no longer.
        """
        result, stopped = self._ready.pop(lane, None), self._stops.get(lane)
        if result is None or stopped is None:
            return None
        self._stops.forget([lane])
        detail = _detail(result, stopped)
        record = Message(stopped.topic, stopped.partition, result.first, None, None)
        return result, record, Refusal(0, DeadLetterReason.SKIPPED, detail)

    def forget(self, lanes: Sequence[str]) -> None:
        """The lanes are given up: who holds them next gets the orders."""
        for lane in lanes:
            self._ready.pop(lane, None)

    def results(self) -> list[SkipResult]:
        """Of the latest orders."""
        return list(self._results.values())


def in_background(work: LastToSkip, place: TopicPartition, offset: int) -> Future[int]:
    """What the work comes to, done on a thread that nobody waits for."""
    found: Future[int] = Future()

    def search() -> None:
        try:
            found.set_result(work(place, offset))
        except Exception as error:
            found.set_exception(error)

    threading.Thread(target=search, name="batch-end", daemon=True).start()
    return found


def last_deleted(client: KafkaClient, place: TopicPartition, offset: int) -> int:
    """The last offset before the partition's start of now."""
    admin = client.admin()
    try:
        start = admin.start_offset(place)
    finally:
        admin.close()
    if start <= offset:
        raise SetupError(
            f"{place.topic}[{place.partition}] starts at offset {start}: offset {offset} is not deleted. "
            "Was the topic made again?"
        )
    return start - 1


def _detail(result: SkipResult, stopped: StoppedLane) -> str:
    if stopped.reason is StopReason.DELETED:
        count = result.last - result.first + 1
        return (
            f"{count} offsets, {result.first} to {result.last}, were deleted before they were read, and were "
            "skipped by an operator: what was in them is not in the table"
        )
    return f"offsets {result.first} to {result.last} were skipped by an operator; {stopped.detail}"
