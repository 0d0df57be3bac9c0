"""Carries out orders to move a stopped lane on: past an unreadable record batch, or past deleted records.

1. Find the last offset to skip: the end of the record batch, or the offset before the partition's start.
2. The next transaction consumes the range up to there, with one dead letter for it; the lane is read on.
3. If the transaction counts, the order is done. If not, the lane stops there again, and the order starts
   over.

Step 1 reads from Kafka. It takes seconds, or hours for a batch of many records whose readers die. So each
stopped lane has a thread for it, and the other lanes go on. The process does not wait for these threads when
it ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Final

from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane, StopReason
from tidemark.index_assigner.input.lane_stops import LaneStops
from tidemark.record_formats.errors import SetupError
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.stream_runtime.kafka.ports import KafkaClient, Message, TopicPartition

_log = logging.getLogger("tidemark.assigner")
LastToSkip = Callable[[TopicPartition, int], int]
"""(partition, offset at which its lane is stopped) -> the last offset to skip."""
_RESULTS_MAX: Final = 100


class LaneSkips:
    """Owned by the stage's thread."""

    def __init__(self, stops: LaneStops, last_of_batch: LastToSkip, last_deleted: LastToSkip) -> None:
        self._stops = stops
        self._last_of_batch = last_of_batch
        self._last_deleted = last_deleted
        self._searches: dict[tuple[str, int, StopReason], Future[int]] = {}
        self._ready: dict[str, SkipResult] = {}
        # Of each lane the last range that was found: ready, or taken by a transaction.
        self._ranges: dict[str, SkipResult] = {}
        self._results: dict[str, SkipResult] = {}

    def follow(self, orders: Sequence[SkipOrder]) -> None:
        """Starts or goes on with the coordinator's orders. An order is ignored unless its lane is stopped
        at the order's offset, or the range that begins there is on its way: then that is the answer.
        """
        for order in orders:
            known = self._ranges.get(order.lane)
            if known is not None and known.first == order.offset:
                self._note(known._replace(id=order.id))
                continue
            stopped = self._stops.get(order.lane)
            if stopped is None or stopped.offset != order.offset:
                continue
            # The key leaves the order's id out: when the operator asks again because it takes long, the new
            # order gets the result of the search that is under way.
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
            self._ready[order.lane] = self._ranges[order.lane] = result
            _log.warning("lane %s moves past offsets %d to %d, as asked", order.lane, *result[1:3])
        except Exception as error:
            # Kafka does not answer, or the child process cannot be started. The operator may ask again.
            result = SkipResult(
                order.id, order.offset, order.offset, f"how far to skip is not known: {error}"
            )
        self._note(result)

    def _note(self, result: SkipResult) -> None:
        self._results[result.id] = result
        while len(self._results) > _RESULTS_MAX:
            del self._results[next(iter(self._results))]

    def waiting(self) -> list[str]:
        """Lanes whose range is known, and is to be consumed by the next transaction."""
        return list(self._ready)

    def take(self, lane: str) -> tuple[SkipResult, Message, Refusal] | None:
        """Takes the lane's range for a transaction; the lane is not stopped any more. None when there is
        none.

        Returns the range, a record without key and value at its first offset for the dead letter, and the
        dead letter's reason (at position 0 of that one record).
        """
        result, stopped = self._ready.pop(lane, None), self._stops.get(lane)
        if result is None or stopped is None:
            return None
        self._stops.forget([lane])
        detail = _detail(result, stopped)
        record = Message(stopped.topic, stopped.partition, result.first, None, None)
        return result, record, Refusal(0, DeadLetterReason.SKIPPED, detail)

    def forget(self, lanes: Iterable[str]) -> None:
        """Forgets the ranges of lanes that are given up or read anew. An order whose range is not published
        yet comes again, to whoever stops at its offset then.
        """
        for lane in lanes:
            self._ready.pop(lane, None)
            self._ranges.pop(lane, None)

    def results(self) -> list[SkipResult]:
        """The results of the latest orders, at most 100."""
        return list(self._results.values())


def in_background(work: LastToSkip, place: TopicPartition, offset: int) -> Future[int]:
    """Runs ``work`` on a daemon thread; the future gets its result or error."""
    result: Future[int] = Future()

    def search() -> None:
        try:
            result.set_result(work(place, offset))
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=search, name="batch-end", daemon=True).start()
    return result


def last_deleted(client: KafkaClient, place: TopicPartition, offset: int) -> int:
    """The offset before the partition's present start. Raises SetupError when ``offset`` is not deleted."""
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
