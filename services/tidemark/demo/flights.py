"""The demo's input: the flights of 2013 as the stream of records that airlines would send.

``event_stream`` yields batches in order of arrival. The number of records per batch bounds the memory of
what is rendered; the plan behind it takes about 40 bytes an event (a year: 1.1 million events).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.demo.events import EventColumns
from tidemark.demo.plan import Breakage, EventKind, EventPlan, plan_events
from tidemark.demo.records import Record, render_records
from tidemark.demo.source import load_flights

BATCH_RECORDS = 4096
DEFAULT_SEED = 2013


@dataclass(frozen=True)
class StreamCounts:
    """What a part of the stream holds. Kinds count sound records, repetitions included.

    ``records`` = the seven kinds + ``broken``. ``repeated`` and ``late`` (arrived after a newer word on the
    same flight) count sound records again. ``broken`` is the number of dead letters to expect.
    """

    records: int = 0
    scheduled: int = 0
    delayed: int = 0
    departed: int = 0
    arrived: int = 0
    diverted: int = 0
    cancelled: int = 0
    removed: int = 0
    broken: int = 0
    repeated: int = 0
    late: int = 0

    def __add__(self, other: StreamCounts) -> StreamCounts:
        return StreamCounts(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(self))
        )


@dataclass(frozen=True)
class EventBatch:
    """Records in order of arrival, the same rows as columns (``EVENT_SCHEMA``), and their numbers."""

    records: list[Record]
    events: pa.Table
    counts: StreamCounts


class EventStream:
    """The stream of ``months`` months (1 to 12) for one seed: planned once, rendered batch by batch.

    Raises ``DemoSourceError`` when the flights cannot be read.
    """

    def __init__(self, months: int, seed: int = DEFAULT_SEED, source: Path | None = None) -> None:
        flights = load_flights(months, source)
        self._plan = plan_events(flights, seed)
        self._columns = EventColumns(flights, self._plan)
        self.flights = len(flights)

    def __len__(self) -> int:
        """Number of records, broken ones included."""
        return len(self._plan)

    @property
    def counts(self) -> StreamCounts:
        """What the whole stream holds, without rendering it."""
        return _counts(self._plan, 0, len(self._plan))

    def batches(self, batch_records: int = BATCH_RECORDS) -> Iterator[EventBatch]:
        """All records in order of arrival, at most ``batch_records`` at a time."""
        for start, stop in self._ranges(batch_records):
            events = self._columns.table(start, stop)
            yield EventBatch(render_records(events), events, _counts(self._plan, start, stop))

    def event_tables(self, batch_records: int = BATCH_RECORDS * 16) -> Iterator[pa.Table]:
        """The columns of all records in order of arrival, not rendered: what the model starts from."""
        for start, stop in self._ranges(batch_records):
            yield self._columns.table(start, stop)

    def _ranges(self, batch_records: int) -> Iterator[tuple[int, int]]:
        if batch_records < 1:
            raise ValueError(f"batch_records is {batch_records}: at least 1")
        for start in range(0, len(self._plan), batch_records):
            yield start, min(start + batch_records, len(self._plan))


def event_stream(
    months: int, seed: int = DEFAULT_SEED, batch_records: int = BATCH_RECORDS, source: Path | None = None
) -> Iterator[EventBatch]:
    """The records of ``months`` months (1 to 12) in order of arrival; equal arguments give equal bytes."""
    return EventStream(months, seed, source).batches(batch_records)


def _counts(plan: EventPlan, start: int, stop: int) -> StreamCounts:
    rows = slice(start, stop)
    sound = plan.broken[rows] == Breakage.NONE
    by_kind = np.bincount(plan.kind[rows][sound], minlength=len(EventKind)).tolist()
    kinds = {kind.name.lower(): by_kind[kind] for kind in EventKind}
    return StreamCounts(
        **kinds,
        records=stop - start,
        broken=int((~sound).sum()),
        repeated=int(plan.repeated[rows].sum()),
        late=int(plan.late[rows].sum()),
    )


def broken_by_kind(events: pa.Table) -> dict[str, int]:
    """Expected dead letters of ``events`` by what is wrong with them."""
    counted = pc.value_counts(events["broken"].combine_chunks()).to_pylist()
    return {
        Breakage(row["values"]).name.lower(): row["counts"]
        for row in counted
        if row["values"] != Breakage.NONE
    }
