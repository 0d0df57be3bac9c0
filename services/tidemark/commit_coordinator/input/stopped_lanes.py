"""Which lanes stand still, whoever stopped them: for status, metrics, the page and `flush`.

Owners report their stopped lanes with each renewal; the coordinator adds those that it stops itself. A lane
that goes from one owner to the next is found to stand still anew: it keeps the time at which it stood first.
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
    """Thread-safe."""

    def __init__(self, reported: Callable[[], Iterable[StoppedLane]], clock: Clock) -> None:
        """``reported``: what live owners say now."""
        self._reported = reported
        self._clock = clock
        self._lock = threading.Lock()
        self._own: dict[tuple[Stage, str], StoppedLane] = {}
        self._seen: dict[tuple[object, ...], _Seen] = {}

    def stop(self, stopped: StoppedLane) -> None:
        """The coordinator's own finding; it takes the place of a former one about the lane."""
        with self._lock:
            self._own[stopped.stage, stopped.lane] = stopped

    def release(self, stage: Stage, lane: str) -> None:
        """The coordinator's own finding holds no longer."""
        with self._lock:
            self._own.pop((stage, lane), None)

    def stopped_by_topic(self, stopped: Iterable[StoppedLane]) -> None:
        """All that stand still now because of their topic, in place of those of before."""
        with self._lock:
            others = {place: each for place, each in self._own.items() if not each.reason.is_of_topic}
            self._own = others | {(each.stage, each.lane): each for each in stopped}

    def current(self) -> list[StoppedLane]:
        """All of them, by topic and partition; the coordinator's own reason goes before an owner's."""
        now_ms = self._clock.now_ms()
        reported = list(self._reported())
        with self._lock:
            found = {(each.stage, each.lane): each for each in reported} | self._own
            self._forget(now_ms)
            lanes = [self._aged(each, now_ms) for each in found.values()]
        return sorted(lanes, key=lambda each: (each.topic, each.partition))

    def _aged(self, stopped: StoppedLane, now_ms: int) -> StoppedLane:
        place = (stopped.stage, stopped.lane, stopped.offset, stopped.reason)
        seen = self._seen.setdefault(place, _Seen(stopped.since_ms, now_ms))
        seen.since_ms, seen.seen_ms = min(seen.since_ms, stopped.since_ms), now_ms
        return msgspec.structs.replace(stopped, since_ms=seen.since_ms)

    def _forget(self, now_ms: int) -> None:
        old = [place for place, seen in self._seen.items() if seen.seen_ms < now_ms - _REMEMBERED_MS]
        for place in old:
            del self._seen[place]


def stopped_states(stopped: Iterable[StoppedLane]) -> list[StoppedLaneState]:
    """For status."""
    return [msgspec.convert(each, StoppedLaneState, from_attributes=True) for each in stopped]


def stopped_warnings(stopped: Iterable[StoppedLane]) -> list[StatusWarning]:
    """For people: which topic, partition and offset, and why."""
    return [stands_still(each.sentence()) for each in stopped]


def stands_still(text: str) -> StatusWarning:
    """Of a lane, or of all lanes of a topic."""
    return StatusWarning(WarningKind.LANE_STOPPED, f"input stands still: {text}")
