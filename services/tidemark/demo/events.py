"""Turns planned events into typed columns: one row per Kafka record, in order of arrival.

``EVENT_SCHEMA`` has the columns of ``flights.avsc`` (the table's), followed by columns of the demo's own:
whether the record has ``_deleted``, whether its value is null, how it is broken, and whether it repeats
another record or arrives after a newer one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.demo.plan import Breakage, EventKind, EventPlan
from tidemark.demo.source import UNKNOWN, Flights, Int32s

KEY_FIELDS = ("flight_date", "carrier", "flight", "origin")
PARTITION_FIELD = "day"
ORDERING_FIELD = "event_time"

_INSTANT = pa.timestamp("us", "UTC")
TABLE_SCHEMA = pa.schema(
    [
        pa.field("flight_date", pa.string(), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        pa.field("event_time", pa.int64(), nullable=False),
        pa.field("status", pa.string()),
        pa.field("tailnum", pa.string()),
        pa.field("dest", pa.string()),
        pa.field("distance", pa.float64()),
        pa.field("sched_dep", _INSTANT),
        pa.field("dep", _INSTANT),
        pa.field("arr", _INSTANT),
        pa.field("dep_delay", pa.int32()),
        pa.field("arr_delay", pa.int32()),
        pa.field("air_time", pa.int32()),
        pa.field("speed_mph", pa.float64()),
        pa.field("diverted", pa.bool_()),
    ]
)
_NOTES = [
    pa.field("deleted", pa.bool_(), nullable=False),
    pa.field("null_value", pa.bool_(), nullable=False),
    pa.field("broken", pa.int8(), nullable=False),
    pa.field("repeated", pa.bool_(), nullable=False),
    pa.field("late", pa.bool_(), nullable=False),
]
EVENT_SCHEMA = pa.schema([*TABLE_SCHEMA, *_NOTES])

_STATUS = pa.array([kind.name.lower() for kind in EventKind])
_MICROS = 1_000_000
_MINUTES_A_DAY = 24 * 60


@dataclass(frozen=True)
class EventColumns:
    """Turns slices of a plan into tables of ``EVENT_SCHEMA``, so that only one slice at a time takes
    memory.
    """

    flights: Flights
    plan: EventPlan

    def table(self, start: int, stop: int) -> pa.Table:
        """The events ``[start, stop)`` of the plan."""
        rows = slice(start, stop)
        flights, flight = self.flights, self.plan.flight[rows]
        # `flight` has each event's row in `flights`: with flight [7, 7] two events get the columns of row 7.
        picked = pa.array(flight)
        kind = self.plan.kind[rows]
        delay = self.plan.delay_minutes[rows]
        delay_known = delay != UNKNOWN
        minutes = np.where(delay_known, delay, 0)
        flown = kind == EventKind.ARRIVED
        arrived_at = self.plan.arrived_at[rows]
        sched_at = flights.sched_at[flight]
        dates = _date_texts(flights.flight_date[flight])
        moved = (flights.sched_minute[flight] + minutes) // _MINUTES_A_DAY
        air_time = flights.air_time[flight]
        columns: dict[str, pa.Array] = {
            "flight_date": dates,
            "carrier": flights.carrier.take(picked),
            "flight": pa.array(flights.number[flight]),
            "origin": flights.origin.take(picked),
            "day": _date_texts(flights.flight_date[flight] + moved),
            "event_time": pa.array(self.plan.event_at[rows] * _MICROS),
            "status": _STATUS.take(pa.array(kind)),
            "tailnum": flights.tailnum.take(picked),
            "dest": flights.dest.take(picked),
            "distance": flights.distance.take(picked),
            "sched_dep": _instants(sched_at),
            "dep": _instants(sched_at + minutes * 60),
            "arr": _instants(arrived_at, arrived_at != 0),
            "dep_delay": _known(delay, delay_known),
            "arr_delay": _known(flights.arr_delay[flight], flown),
            "air_time": _known(air_time, flown),
            "speed_mph": _speed(flights.distance.take(picked), air_time, flown),
            "diverted": pa.array(kind == EventKind.DIVERTED),
            "deleted": pa.array(kind == EventKind.CANCELLED),
            "null_value": pa.array(self._null_values(rows)),
            "broken": pa.array(self.plan.broken[rows]),
            "repeated": pa.array(self.plan.repeated[rows]),
            "late": pa.array(self.plan.late[rows]),
        }
        return pa.table(columns, schema=EVENT_SCHEMA)

    def _null_values(self, rows: slice) -> npt.NDArray[np.bool_]:
        removed = self.plan.kind[rows] == EventKind.REMOVED
        return np.asarray(removed | (self.plan.broken[rows] == Breakage.NULL_WITHOUT_KEY))


def key_texts(table: pa.Table) -> pa.Array:
    """Hudi's COMPLEX record key of each row: ``flight_date:2013-01-01,carrier:UA,flight:1545,origin:EWR``."""
    parts: list[Any] = []
    for i, name in enumerate(KEY_FIELDS):
        parts += [("," if i else "") + name + ":", table[name].cast(pa.string())]
    return _joined(parts)


def _joined(parts: list[Any]) -> pa.Array:
    joined = pc.binary_join_element_wise(*parts, "")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _date_texts(days: Int32s) -> pa.Array:
    """Days since 1970 as text: 15706 → ``2013-01-01``."""
    return pa.array(days.astype(np.int32)).cast(pa.date32()).cast(pa.string())


def _instants(seconds: npt.NDArray[np.int64], known: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(seconds * _MICROS, mask=None if known is None else ~known).cast(_INSTANT)


def _known(values: Int32s, known: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, mask=~known)


def _speed(distance: pa.Array, air_time: Int32s, flown: npt.NDArray[np.bool_]) -> pa.Array:
    """Miles per hour in the air, rounded to one decimal; null for flights that did not arrive."""
    # Those divide by 1 instead of by an unknown time; the mask makes their results null.
    minutes = np.where(flown, air_time, 1)
    return pa.array(np.round(np.asarray(distance.to_numpy()) * 60 / minutes, 1), mask=~flown)
