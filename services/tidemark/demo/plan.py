"""Plans the events of all flights: their kinds, times and order of arrival, as columns with one entry per
event.

The flights, their delays and their cancellations are those of the source. The rest is drawn at random from a
seed:

- schedule: 2 to 36 hours before the scheduled departure;
- delay, for flights that leave 45 minutes late or more: an estimate (70 to 130 % of the real delay, in steps
  of 5 minutes), 10 to 60 minutes before the scheduled departure;
- cancellation: two of three as an event with ``_deleted``, from 100 minutes before to 60 minutes after the
  scheduled departure; one of three as a null value, which has no event time and is sent after all other
  events of the flight;
- transport: up to 20 seconds; for every 20th event 10 minutes to 24 hours (log-uniform), so that it arrives
  out of order;
- repetition: every 100th event, and every 10th schedule of a flight that will be cancelled, arrives a second
  time, one second to 36 hours after the first (log-uniform);
- breakage: a share of ``BROKEN_SHARE`` of the events is followed by a broken copy; the kinds take turns.

The events of one flight have distinct event times (schedule < delay < departure < arrival, schedule <
cancellation). Only repetitions share one, and they are equal in every field. So the newest event of a flight
does not depend on the order of arrival, except for null values, which arrive last.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tidemark.demo.source import UNKNOWN, Bools, Flights, Int32s, Int64s

Int8s = npt.NDArray[np.int8]

LATE_SHARE = 0.05
REPEATED_SHARE = 0.01
REPEATED_SHARE_CANCELLED = 0.1
NULL_VALUE_SHARE = 1 / 3
BROKEN_SHARE = 0.0005
DELAY_ANNOUNCED_MINUTES = 45
_MINUTE, _HOUR = 60, 3600


class EventKind(IntEnum):
    """The kind of an event. ``CANCELLED`` has ``_deleted``; ``REMOVED`` is a null value."""

    SCHEDULED = 0
    DELAYED = 1
    DEPARTED = 2
    ARRIVED = 3
    DIVERTED = 4
    CANCELLED = 5
    REMOVED = 6


class Breakage(IntEnum):
    """How a record is broken. A record of any kind but NONE has to become a dead letter."""

    NONE = 0
    NOT_JSON = 1
    NOT_AN_OBJECT = 2
    NO_KEY_FIELDS = 3
    NO_EVENT_TIME = 4
    MISTYPED_EVENT_TIME = 5
    MISTYPED_DISTANCE = 6
    PARTITION_OUTSIDE_TABLE = 7
    NULL_WITHOUT_KEY = 8


BREAKAGES = tuple(kind for kind in Breakage if kind is not Breakage.NONE)


@dataclass(frozen=True)
class EventPlan:
    """Events in order of arrival; every column has one entry per event.

    ``flight``: row of the flight in ``Flights``; ``event_at``: seconds since 1970 UTC; ``delay_minutes``: the
    departure delay that the event reports, or ``UNKNOWN``; ``arrived_at``: seconds since 1970 UTC, or 0;
    ``repeated``: a second copy of an event; ``broken``: a ``Breakage``; ``late``: a newer event of the same
    flight arrived before.
    """

    flight: Int32s
    kind: Int8s
    event_at: Int64s
    delay_minutes: Int32s
    arrived_at: Int64s
    repeated: Bools
    broken: Int8s
    late: Bools

    def __len__(self) -> int:
        return len(self.flight)


@dataclass(frozen=True)
class _Words:
    """Events before they are ordered, with the columns of ``EventPlan``. ``sent_at``: the time of arrival in
    seconds since 1970 UTC, with fractions.
    """

    flight: Int32s
    kind: Int8s
    event_at: Int64s
    delay_minutes: Int32s
    arrived_at: Int64s
    sent_at: npt.NDArray[np.float64]
    repeated: Bools
    broken: Int8s

    def pick(self, rows: npt.NDArray[np.intp]) -> dict[str, npt.NDArray[np.generic]]:
        return {name: getattr(self, name)[rows] for name in self.__dataclass_fields__}


def plan_events(flights: Flights, seed: int) -> EventPlan:
    """All events of ``flights`` in order of arrival; the same seed gives the same plan."""
    rng = np.random.default_rng(seed)
    words = _concat([_announced(flights, rng), _flown(flights), _cancelled(flights, rng)])
    words = _with_transport(words, rng)
    words = _with_repetitions(words, flights.cancelled, rng)
    words = _nulls_last(words, len(flights), rng)
    words = _with_broken_copies(words, rng)
    order = np.argsort(words.sent_at, kind="stable")
    chosen = words.pick(order)
    del chosen["sent_at"]
    late = _late(chosen["flight"], chosen["event_at"], chosen["broken"] != Breakage.NONE)
    return EventPlan(**chosen, late=late)  # type: ignore[arg-type]  # names and types are those of _Words


def _words(
    flight: npt.NDArray[np.int64],
    kind: EventKind | Int8s,
    event_at: Int64s,
    delay_minutes: Int32s | None = None,
    arrived_at: Int64s | None = None,
) -> _Words:
    n = len(flight)
    return _Words(
        flight=flight.astype(np.int32),
        kind=np.broadcast_to(np.asarray(kind, dtype=np.int8), n).copy(),
        event_at=event_at,
        delay_minutes=np.full(n, UNKNOWN) if delay_minutes is None else delay_minutes,
        arrived_at=np.zeros(n, dtype=np.int64) if arrived_at is None else arrived_at,
        sent_at=event_at.astype(np.float64),
        repeated=np.zeros(n, dtype=np.bool_),
        broken=np.zeros(n, dtype=np.int8),
    )


def _concat(parts: list[_Words]) -> _Words:
    names = _Words.__dataclass_fields__
    return _Words(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _announced(flights: Flights, rng: np.random.Generator) -> _Words:
    """The schedule of every flight, and a delay for those that leave ``DELAY_ANNOUNCED_MINUTES`` late
    or more.
    """
    every = np.arange(len(flights))
    schedule = _words(
        every, EventKind.SCHEDULED, flights.sched_at - rng.integers(2 * _HOUR, 36 * _HOUR, len(every))
    )
    late = every[flights.dep_delay >= DELAY_ANNOUNCED_MINUTES]
    guess = flights.dep_delay[late] * rng.uniform(0.7, 1.3, len(late))
    estimate = (np.round(guess / 5) * 5).astype(np.int32)
    said_at = flights.sched_at[late] - rng.integers(10 * _MINUTE, 60 * _MINUTE, len(late))
    return _concat([schedule, _words(late, EventKind.DELAYED, said_at, estimate)])


def _flown(flights: Flights) -> _Words:
    """Departure and arrival at the source's times. A diverted flight without arrival time is reported 6 hours
    after its departure.
    """
    flown = np.flatnonzero(~flights.cancelled)
    delay, block = flights.dep_delay[flown], flights.block_minutes[flown]
    departed_at = flights.sched_at[flown] + delay.astype(np.int64) * _MINUTE
    arrives = block != UNKNOWN
    in_the_air = np.where(arrives, block, 6 * 60).astype(np.int64)
    arrived_at = departed_at + in_the_air * _MINUTE
    kind = np.where(flights.arr_delay[flown] == UNKNOWN, EventKind.DIVERTED, EventKind.ARRIVED).astype(
        np.int8
    )
    departure = _words(flown, EventKind.DEPARTED, departed_at, delay)
    return _concat([departure, _words(flown, kind, arrived_at, delay, np.where(arrives, arrived_at, 0))])


def _cancelled(flights: Flights, rng: np.random.Generator) -> _Words:
    cancelled = np.flatnonzero(flights.cancelled)
    as_null = rng.random(len(cancelled)) < NULL_VALUE_SHARE
    kind = np.where(as_null, EventKind.REMOVED, EventKind.CANCELLED).astype(np.int8)
    said_at = flights.sched_at[cancelled] + rng.integers(-100 * _MINUTE, 60 * _MINUTE, len(cancelled))
    return _words(cancelled, kind, said_at)


def _log_uniform(rng: np.random.Generator, low: float, high: float, n: int) -> npt.NDArray[np.float64]:
    drawn: npt.NDArray[np.float64] = np.exp(rng.uniform(np.log(low), np.log(high), n))
    return drawn


def _with_transport(words: _Words, rng: np.random.Generator) -> _Words:
    n = len(words.flight)
    lag = rng.uniform(0.2, 20, n)
    late = rng.random(n) < LATE_SHARE
    lag[late] = _log_uniform(rng, 10 * _MINUTE, 24 * _HOUR, int(late.sum()))
    words.sent_at[:] += lag
    return words


def _with_repetitions(words: _Words, cancelled: Bools, rng: np.random.Generator) -> _Words:
    often = cancelled[words.flight] & (words.kind == EventKind.SCHEDULED)
    share = np.where(often, REPEATED_SHARE_CANCELLED, REPEATED_SHARE)
    again = np.flatnonzero(rng.random(len(words.flight)) < share)
    copies = _Words(**words.pick(again))  # type: ignore[arg-type]  # names and types are those of _Words
    copies.sent_at[:] += _log_uniform(rng, 1, 36 * _HOUR, len(again))
    copies.repeated[:] = True
    return _concat([words, copies])


def _nulls_last(words: _Words, flights: int, rng: np.random.Generator) -> _Words:
    """Moves null values behind all other events of their flight, because they have no event time to be
    ordered by.
    """
    null = words.kind == EventKind.REMOVED
    last = np.zeros(flights, dtype=np.float64)
    # The latest arrival per flight. `maximum.at` handles repeated indexes, which `last[flight] = …` would
    # not: for flights [4, 4] that are sent at [10, 7] last[4] becomes 10.
    np.maximum.at(last, words.flight[~null], words.sent_at[~null])
    wait = rng.uniform(1, 30, int(null.sum()))
    words.sent_at[null] = np.maximum(words.sent_at[null], last[words.flight[null]] + wait)
    return words


def _with_broken_copies(words: _Words, rng: np.random.Generator) -> _Words:
    """Adds broken copies of events that have a value, at least one of each kind."""
    valued = np.flatnonzero(words.kind < EventKind.CANCELLED)
    wanted = max(len(BREAKAGES), round(BROKEN_SHARE * len(words.flight)))
    chosen = rng.choice(valued, wanted, replace=len(valued) < wanted)
    copies = _Words(**words.pick(chosen))  # type: ignore[arg-type]  # names and types are those of _Words
    copies.sent_at[:] += 0.05
    copies.repeated[:] = False
    copies.broken[:] = np.resize(np.asarray(BREAKAGES, dtype=np.int8), wanted)
    return _concat([words, copies])


def _late(
    flight: npt.NDArray[np.generic], event_at: npt.NDArray[np.generic], broken: npt.NDArray[np.bool_]
) -> Bools:
    """Which sound events arrive after a newer one of their flight."""
    sound = np.flatnonzero(~broken)
    order = sound[np.argsort(flight[sound], kind="stable")]
    # An event is late if its time is below the running maximum of its flight. The rows are sorted by flight,
    # and the flight's number is put above the 32 bits of the time, so one running maximum serves all flights:
    # a later flight's ranks exceed all before. Flight 2 with times 90, 80: 2·2³² + 80 < 2·2³² + 90, so the
    # second is late.
    ranked = (flight[order].astype(np.int64) << 32) + event_at[order].astype(np.int64)
    late = np.zeros(len(flight), dtype=np.bool_)
    late[order] = ranked < np.maximum.accumulate(ranked)
    return late
