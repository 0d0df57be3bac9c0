"""What Spark does across epochs of ours: plans that are carried out later, writes in flight, clocks apart.

Each goes for a table that `test_operations_beside_us` goes on with.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.input_model import Event, Row, Upsert
from tests.interop.operated_table import OperatedTable
from tests.interop.ruled_table import look
from tidemark.hudi_format.model import instant_to_ms

HOUR_MS = 3_600_000
CLUSTERED = "region-4"
HOURS_AHEAD = 2


def clustering_across_an_epoch(table: OperatedTable) -> None:
    """Planned before epochs of ours and carried out after them. What leaves the plan's file groups alone is
    committed meanwhile; an epoch that changes or deletes their rows waits, and says so.
    """
    path, pipeline = table.table.path, table.table.pipeline
    table.touched = table.some(6, CLUSTERED)
    table.spark.clustering("schedule", CLUSTERED)
    planned = set(look(path).clustered)
    assert planned
    if not table.write_what_is_in_flight():
        table.commit([*_elsewhere(table), *(Upsert(row) for row in table.fresh(CLUSTERED))])
        assert set(look(path).clustered) == planned
    rows, above = table.table.stream.row, table.above()
    ours = [Upsert({**rows(key, above), "region": CLUSTERED}) for key in table.touched[:3]]
    table.send([*ours, *(table.gone(key) for key in table.touched[3:])])
    pipeline.wait("a clustering that commits wait for", lambda: _waits_for_a_clustering(table))
    table.spark.clustering("execute", CLUSTERED)
    assert planned <= look(path).replaced.keys()
    pipeline.flush()
    table.agrees()


def _elsewhere(table: OperatedTable) -> list[Event]:
    """Events of keys that have no row in the clustered region; some of them get one."""
    there = set(table.some(10_000, CLUSTERED))
    named = ((e.row["id"] if isinstance(e, Upsert) else e.key, e) for e in table.events())
    return [event for key, event in named if key not in there]


def _waits_for_a_clustering(table: OperatedTable) -> bool:
    said = table.table.pipeline.status()["warnings"]
    return any(each.startswith("commits wait: ") and "clustering" in each for each in said)


def write_in_flight(table: OperatedTable) -> None:
    """Its files, of new groups, are written before epochs of ours are committed; it commits after them."""
    rows = table.fresh("region-of-spark-alone")
    instant = _around_an_epoch(table, rows)
    table.model.apply([Upsert(row) for row in rows])
    table.touched = [row["id"] for row in rows]
    done = look(table.table.path).timeline.instants[instant].completion
    assert done is not None
    assert done > table.table.pipeline.status()["last_commit"]["completion"] > instant


def write_in_flight_that_loses(table: OperatedTable) -> None:
    """The same with rows that our epoch changes: Hudi refuses Spark's commit, and a clean takes it back."""
    table.touched = table.some(6)
    ours = [Upsert(row) for row in table.changed(table.touched, name="ours")]
    with pytest.raises(Exception, match="HoodieWriteConflictException"):
        _around_an_epoch(table, table.changed(table.touched), ours)
    lost = {each.requested for each in look(table.table.path).timeline.pending()}
    assert len(lost) == 1
    table.taken_back_by_a_clean(lost)


def _around_an_epoch(table: OperatedTable, rows: list[Row], extra: Sequence[Event] = ()) -> str:
    """An upsert of Spark's, whose files are written before an epoch of ours and that commits after it;
    returns its instant.
    """
    before = look(table.table.path).timeline.instants.keys()
    with table.spark.in_flight(table._as_table(rows), "upsert"):
        [instant] = look(table.table.path).timeline.instants.keys() - before
        table.write_what_is_in_flight()
        table.goes_on(extra)
    return instant


def clean_by_hours(table: OperatedTable) -> None:
    """By a cleaner whose clock is two hours ahead: but for a write of its own all is older than an hour."""
    table.clean("KEEP_LATEST_BY_HOURS", ahead_hours=HOURS_AHEAD)


def clock_apart(table: OperatedTable) -> None:
    """A writer whose clock is two hours ahead, and after an epoch of ours one whose clock is an hour behind
    that: its commit lies below ours. It has new keys only, since Hudi itself loses what lies below the rows
    that it changes.
    """
    path, spark = table.table.path, table.spark
    ahead, before = spark.ahead_hours + HOURS_AHEAD, look(path).timeline.newest
    spark.set_clock(ahead)
    changed = table.some(6)
    table.upsert([*table.changed(changed), *table.fresh("region-1")])
    newest = table.newest()
    assert instant_to_ms(newest) > instant_to_ms(before) + HOUR_MS
    table.write_what_is_in_flight()
    table.goes_on()
    assert table.table.pipeline.status()["last_commit"]["completion"] > newest
    rows = table.fresh("region-of-a-clock-behind")
    known = look(path).timeline.instants.keys()
    spark.set_clock(ahead - 1)
    table.upsert(rows)
    [late] = look(path).timeline.instants.keys() - known
    done = look(path).timeline.instants[late].completion
    assert done is not None
    assert late < done < newest
    # Whoever changes what is there now has a clock above it.
    spark.set_clock(ahead)
    table.touched = [*(row["id"] for row in rows), *changed]
