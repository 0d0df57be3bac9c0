"""Orders to move a stopped lane past the record batch at which it stands: the owner's part.

::

    ordered ──batch's end found──► ready ──in a transaction──► (lane goes on) ──it counts──► the order ends
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

from epoch_protocol.stopped_lanes import SkipOrder, SkipResult
from index_assigner.shuffle.lane_stops import LaneStops
from index_assigner.shuffle.refusals import Reason, Refusal
from stream_runtime.kafka.ports import Message, TopicPartition

_log = logging.getLogger("tidemark.assigner")
LastOfBatch = Callable[[TopicPartition, int], int]
_RESULTS_MAX: Final = 100


class LaneSkips:
    """Owned by the stage's thread."""

    def __init__(self, stops: LaneStops, last_of_batch: LastOfBatch) -> None:
        self._stops = stops
        self._last_of_batch = last_of_batch
        self._searches: dict[tuple[str, int], Future[int]] = {}
        self._ready: dict[str, SkipResult] = {}
        self._results: dict[str, SkipResult] = {}

    def follow(self, orders: Sequence[SkipOrder]) -> None:
        """What the coordinator wants now. Orders of lanes that do not stand at the offset are passed over."""
        for order in orders:
            stopped = self._stops.get(order.lane)
            if stopped is None or stopped.offset != order.offset or order.lane in self._ready:
                continue
            # By what is looked for: who asks again, since it took long, gets what was found meanwhile.
            wanted = (order.lane, order.offset)
            if wanted not in self._searches:
                place = TopicPartition(stopped.topic, stopped.partition)
                self._searches[wanted] = in_background(self._last_of_batch, place, order.offset)
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
                order.id, order.offset, order.offset, f"the batch's end is not known: {error}"
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
        detail = f"offsets {result.first} to {result.last} were skipped by an operator; {stopped.detail}"
        record = Message(stopped.topic, stopped.partition, result.first, None, None)
        return result, record, Refusal(0, Reason.SKIPPED, detail)

    def forget(self, lanes: Sequence[str]) -> None:
        """The lanes are given up: who holds them next gets the orders."""
        for lane in lanes:
            self._ready.pop(lane, None)

    def results(self) -> list[SkipResult]:
        """Of the latest orders."""
        return list(self._results.values())


def in_background(work: LastOfBatch, place: TopicPartition, offset: int) -> Future[int]:
    """What the work comes to, done on a thread that nobody waits for."""
    found: Future[int] = Future()

    def search() -> None:
        try:
            found.set_result(work(place, offset))
        except Exception as error:
            found.set_exception(error)

    threading.Thread(target=search, name="batch-end", daemon=True).start()
    return found
