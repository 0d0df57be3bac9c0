"""The model against a replay that applies one record after the other, and against the source itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.demo.comparison import compare_tables
from tidemark.demo.events import EVENT_SCHEMA, KEY_FIELDS, TABLE_SCHEMA
from tidemark.demo.flights import EventStream
from tidemark.demo.model import TableModel
from tidemark.demo.source import load_flights

SEED = 7


@dataclass
class Replay:
    """Last writer wins, one record at a time, on dictionaries."""

    rows: dict[str, dict[str, Any]]
    newest: dict[str, int]

    def apply(self, key: str, row: dict[str, Any] | None, deleted: bool) -> None:
        if row is None:
            self.rows.pop(key, None)
        elif row["event_time"] >= self.newest.get(key, row["event_time"]):
            self.newest[key] = row["event_time"]
            if deleted:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row


@pytest.fixture(scope="module")
def stream() -> EventStream:
    return EventStream(1, seed=SEED)


@pytest.fixture(scope="module")
def model(stream: EventStream) -> TableModel:
    return TableModel(stream.event_tables())


def _key_of_kafka_key(key: bytes) -> str:
    text = key.decode()
    if text.startswith("{"):
        return ",".join(f"{name}:{value}" for name, value in json.loads(text).items())
    return text


def _typed(said: dict[str, Any]) -> dict[str, Any]:
    for name in ("sched_dep", "dep", "arr"):
        if said[name] is not None:
            said[name] = datetime.fromisoformat(said[name]).astimezone(UTC)
    return said


def test_model_equals_a_replay_of_the_records_as_sent(stream: EventStream, model: TableModel) -> None:
    replay = Replay({}, {})
    for batch in stream.batches():
        for (key, value), broken in zip(batch.records, batch.events["broken"].to_pylist(), strict=True):
            if broken:
                continue
            assert key is not None
            said = None if value is None else _typed(json.loads(value))
            deleted = bool(said and said.pop("_deleted", False))
            replay.apply(_key_of_kafka_key(key), said, deleted)
    replayed = pa.Table.from_pylist(list(replay.rows.values()), schema=TABLE_SCHEMA)
    difference = compare_tables(model.rows, replayed)
    assert difference.same, difference.examples
    assert difference.found == model.counts.rows > 26_000


def test_model_counts_are_those_of_the_source(stream: EventStream, model: TableModel) -> None:
    flights = load_flights(1)
    past_midnight = (flights.sched_minute + flights.dep_delay >= 24 * 60) & ~flights.cancelled
    assert model.counts.rows == len(flights) - int(flights.cancelled.sum())
    assert model.counts.moved_rows == int(past_midnight.sum())
    assert model.counts.stale == stream.counts.late
    assert model.counts.dead_letters == stream.counts.broken
    assert model.counts.records == len(stream)
    assert model.counts.deleted <= int(flights.cancelled.sum())
    assert model.counts.moves > model.counts.moved_rows


def test_a_moved_flight_tells_its_move(model: TableModel) -> None:
    key = model.moved_key()
    assert key is not None
    life = model.life(key)
    assert any(event.effect.startswith("moved from") for event in life)
    assert life[0].effect.startswith("inserted into")
    assert [event.arrival for event in life] == sorted(event.arrival for event in life)


def test_a_deleted_flight_stays_deleted_when_an_older_word_arrives(model: TableModel) -> None:
    key = model.deleted_key()
    assert key is not None
    effects = [event.effect for event in model.life(key)]
    assert effects[0].startswith("inserted into")
    assert "deleted" in effects
    assert effects[-1] == "ignored: older than what is known"


def test_life_of_an_unknown_key_is_empty(model: TableModel) -> None:
    assert model.life("flight_date:2013-01-01,carrier:XX,flight:1,origin:EWR") == []


_CONSTANT = {
    "flight_date": "2013-01-01",
    "carrier": "UA",
    "origin": "EWR",
    "broken": 0,
    "repeated": False,
    "late": False,
}


def _event(number: int, at: int, day: int, kind: str) -> dict[str, Any]:
    return {
        **_CONSTANT,
        "flight": number,
        "day": f"2013-01-0{day}",
        "event_time": at,
        "status": kind,
        "deleted": kind == "delete",
        "null_value": kind == "null",
    }


_EVENTS = st.lists(
    st.builds(
        _event,
        st.integers(1, 3),
        st.integers(1, 6),
        st.integers(1, 3),
        st.sampled_from(["upsert", "upsert", "delete", "null"]),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(_EVENTS)
def test_any_sequence_of_events_gives_the_table_of_a_replay(events: list[dict[str, Any]]) -> None:
    """Also what the demo never sends: ties with different contents, null values anywhere."""
    replay = Replay({}, {})
    for event in events:
        key = ",".join(f"{name}:{event[name]}" for name in KEY_FIELDS)
        replay.apply(key, None if event["null_value"] else event, event["deleted"])
    model = TableModel([pa.Table.from_pylist(events, schema=EVENT_SCHEMA)])
    replayed = pa.Table.from_pylist(list(replay.rows.values()), schema=TABLE_SCHEMA)
    difference = compare_tables(model.rows, replayed)
    assert difference.same, difference.examples
    for key in {",".join(f"{name}:{event[name]}" for name in KEY_FIELDS) for event in events}:
        gone = model.life(key)[-1].effect in ("deleted", "nothing to delete")
        assert not (gone and key in replay.rows)


def test_comparison_finds_each_kind_of_difference(model: TableModel) -> None:
    rows = model.rows.slice(0, 100)
    changed = rows.slice(10, 1).set_column(
        rows.schema.get_field_index("dep_delay"),
        rows.schema.field("dep_delay"),
        pa.array([9_999], pa.int32()),
    )
    stranger = model.rows.slice(200, 1)
    found = pa.concat_tables([rows.slice(1, 9), changed, rows.slice(11), rows.slice(50, 1), stranger])
    difference = compare_tables(rows, found)
    assert (difference.missing, difference.unexpected, difference.doubled, difference.different) == (
        1,
        1,
        1,
        1,
    )
    assert not difference.same
    assert any("dep_delay is 9999" in example for example in difference.examples)


def test_comparison_sees_a_null_that_should_be_a_value(model: TableModel) -> None:
    rows = model.rows.filter(pc.is_valid(model.rows["arr_delay"])).slice(0, 10)
    at = rows.schema.get_field_index("arr_delay")
    blank = rows.set_column(at, rows.schema.field("arr_delay"), pa.nulls(10, pa.int32()))
    assert compare_tables(rows, blank).different == 10


def test_comparison_names_a_column_that_is_not_there(model: TableModel) -> None:
    with pytest.raises(ValueError, match="no column tailnum"):
        compare_tables(model.rows, model.rows.drop_columns(["tailnum"]))
