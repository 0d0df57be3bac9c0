"""The demo's input: the flights of 2013 as the stream of records that airlines would send.

``event_stream`` yields batches in order of arrival. Only one batch at a time is in memory as records; the
plan behind them takes about 40 bytes per event (a year has 1.1 million events).
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
    """The counts of a part of the stream. ``records`` is the sum of the seven kinds, which count sound
    records with their repetitions, and ``broken``, which is the number of dead letters to expect.
    ``repeated`` and ``late`` (arrived after a newer event of the same flight) count some of the sound records
    again.
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
    """A batch: records in order of arrival, the same events as columns (``EVENT_SCHEMA``), and their
    counts.
    """

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
        """The number of records, including broken ones."""
        return len(self._plan)

    @property
    def counts(self) -> StreamCounts:
        """The counts of the whole stream. They come from the plan, so no record is made."""
        return _counts(self._plan, 0, len(self._plan))

    def batches(self, batch_records: int = BATCH_RECORDS) -> Iterator[EventBatch]:
        """All records in order of arrival, at most ``batch_records`` at a time."""
        for start, stop in self._ranges(batch_records):
            events = self._columns.table(start, stop)
            yield EventBatch(render_records(events), events, _counts(self._plan, start, stop))

    def event_tables(self, batch_records: int = BATCH_RECORDS * 16) -> Iterator[pa.Table]:
        """The events of the whole stream as columns, in order of arrival, for the model. No record is
        made.
        """
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
    """The number of expected dead letters among ``events``, by kind of breakage."""
    counted = pc.value_counts(events["broken"].combine_chunks()).to_pylist()
    return {
        Breakage(row["values"]).name.lower(): row["counts"]
        for row in counted
        if row["values"] != Breakage.NONE
    }
