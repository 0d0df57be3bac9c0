"""All stopped lanes, for status, metrics, the page and `tidemark flush`.

Owners report the lanes that they stopped with each renewal; the coordinator adds the lanes that it stops
itself. If a stopped lane gets another owner, that one stops it anew: the first time is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.stopped_lanes import StoppedLane
from tidemark.stream_runtime.clock import Clock
from tidemark.table_status.status import StoppedLaneState
from tidemark.table_status.warnings import StatusWarning, WarningKind

_REMEMBERED_MS: Final = 600_000


@dataclass
class _Seen:
    since_ms: int
    seen_ms: int


class StoppedLanes:
    """The lanes that are stopped now, with the time since when; thread-safe."""

    def __init__(self, reported: Callable[[], Iterable[StoppedLane]], clock: Clock) -> None:
        """``reported``: the stopped lanes that live owners report now."""
        self._reported = reported
        self._clock = clock
        self._lock = threading.Lock()
        self._own: dict[tuple[Stage, str], StoppedLane] = {}
        self._seen: dict[tuple[object, ...], _Seen] = {}

    def stop(self, stopped: StoppedLane) -> None:
        """The coordinator stops a lane; replaces its former reason for the same lane."""
        with self._lock:
            self._own[stopped.stage, stopped.lane] = stopped

    def release(self, stage: Stage, lane: str) -> None:
        """The coordinator no longer stops the lane; its owner may still do."""
        with self._lock:
            self._own.pop((stage, lane), None)

    def stopped_by_topic(self, stopped: Iterable[StoppedLane]) -> None:
        """Replaces the lanes that the coordinator stops because of their topic (missing, recreated, …)."""
        with self._lock:
            others = {place: stop for place, stop in self._own.items() if not stop.reason.is_of_topic}
            self._own = others | {(stop.stage, stop.lane): stop for stop in stopped}

    def current(self) -> list[StoppedLane]:
        """All stopped lanes by topic and partition. The coordinator's reason is preferred to an owner's."""
        now_ms = self._clock.now_ms()
        reported = list(self._reported())
        with self._lock:
            stops = {(stop.stage, stop.lane): stop for stop in reported} | self._own
            self._forget(now_ms)
            lanes = [self._aged(stop, now_ms) for stop in stops.values()]
        return sorted(lanes, key=lambda stop: (stop.topic, stop.partition))

    def _aged(self, stopped: StoppedLane, now_ms: int) -> StoppedLane:
        """The lane with the earliest time at which it was stopped at this offset for this reason."""
        place = (stopped.stage, stopped.lane, stopped.offset, stopped.reason)
        seen = self._seen.setdefault(place, _Seen(stopped.since_ms, now_ms))
        seen.since_ms, seen.seen_ms = min(seen.since_ms, stopped.since_ms), now_ms
        return msgspec.structs.replace(stopped, since_ms=seen.since_ms)

    def _forget(self, now_ms: int) -> None:
        old = [place for place, seen in self._seen.items() if seen.seen_ms < now_ms - _REMEMBERED_MS]
        for place in old:
            del self._seen[place]


def stopped_states(stopped: Iterable[StoppedLane]) -> list[StoppedLaneState]:
    """The stopped lanes as the status document has them."""
    return [msgspec.convert(lane, StoppedLaneState, from_attributes=True) for lane in stopped]


def stopped_warnings(stopped: Iterable[StoppedLane]) -> list[StatusWarning]:
    """A warning for each stopped lane: topic, partition, offset, and why."""
    return [stands_still(lane.sentence()) for lane in stopped]


def stands_still(text: str) -> StatusWarning:
    """The warning about one stopped lane, or about all lanes of a topic."""
    return StatusWarning(WarningKind.LANE_STOPPED, f"input stands still: {text}")
