"""The demo's stream: what the source says, what the seed adds, and records that say what columns say."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tidemark import demo
from tidemark.config import load_config
from tidemark.demo.events import KEY_FIELDS, ORDERING_FIELD, PARTITION_FIELD, TABLE_SCHEMA, key_texts
from tidemark.demo.flights import EventBatch, EventStream, StreamCounts, broken_by_kind, event_stream
from tidemark.demo.plan import BREAKAGES
from tidemark.demo.records import DELETE_FIELD, JSON_KEYED
from tidemark.demo.source import DemoSourceError, load_flights
from tidemark.hudi_format.schema import TableSchema

DEMO_FOLDER = Path(demo.__path__[0])
JANUARY_FLIGHTS, JANUARY_CANCELLED, JANUARY_PAST_MIDNIGHT = 27_004, 521, 52


@pytest.fixture(scope="module")
def stream() -> EventStream:
    return EventStream(1, seed=7)


@pytest.fixture(scope="module")
def batches(stream: EventStream) -> list[EventBatch]:
    return list(stream.batches())


@pytest.fixture(scope="module")
def events(batches: list[EventBatch]) -> pa.Table:
    return pa.concat_tables([batch.events for batch in batches]).combine_chunks()


def _instant(text: str) -> np.datetime64:
    return np.datetime64(text.removesuffix("Z"), "us")


def test_january_is_read_with_cancellations_and_delays_past_midnight() -> None:
    flights = load_flights(1)
    assert len(flights) == JANUARY_FLIGHTS
    assert int(flights.cancelled.sum()) == JANUARY_CANCELLED
    past = (flights.sched_minute + flights.dep_delay >= 24 * 60) & ~flights.cancelled
    assert int(past.sum()) == JANUARY_PAST_MIDNIGHT
    assert (np.diff(flights.sched_at) >= 0).all()


def test_a_flight_of_the_source_is_found_with_its_utc_times() -> None:
    """UA 1545, 1 January, 05:15 from Newark (Eastern Standard Time): left 2 minutes late, arrived 11."""
    flights = load_flights(1)
    rows = np.flatnonzero((flights.number == 1545) & (flights.flight_date == 15_706))
    row = next(r for r in rows.tolist() if flights.carrier[r].as_py() == "UA")
    assert np.datetime64(int(flights.sched_at[row]), "s") == np.datetime64("2013-01-01T10:15:00")
    assert (flights.dep_delay[row], flights.arr_delay[row], flights.air_time[row]) == (2, 11, 227)
    # 05:17 to 08:30 Central Time are 4 hours 13 minutes.
    assert flights.block_minutes[row] == 4 * 60 + 13


@pytest.mark.parametrize("months", [0, 13, -1])
def test_months_out_of_range_are_refused(months: int) -> None:
    with pytest.raises(DemoSourceError, match="choose 1 to 12"):
        load_flights(months)


def test_counts_add_up_to_records(stream: EventStream, batches: list[EventBatch]) -> None:
    total = sum((batch.counts for batch in batches), StreamCounts())
    assert total == stream.counts
    assert total.records == len(stream) == sum(len(batch.records) for batch in batches)
    kinds = (total.scheduled, total.delayed, total.departed, total.arrived, total.diverted, total.cancelled)
    assert sum(kinds) + total.removed + total.broken == total.records


def test_every_flight_is_scheduled_and_departs_or_is_cancelled(events: pa.Table) -> None:
    once = events.to_pandas()
    once = once[(once.broken == 0) & ~once.repeated]
    counts = once.status.value_counts()
    assert counts["scheduled"] == JANUARY_FLIGHTS
    assert counts["cancelled"] + counts["removed"] == JANUARY_CANCELLED
    assert counts["departed"] == JANUARY_FLIGHTS - JANUARY_CANCELLED == counts["arrived"] + counts["diverted"]
    assert 0.2 < counts["removed"] / JANUARY_CANCELLED < 0.47


def test_repetitions_and_late_events_are_few_but_there(stream: EventStream) -> None:
    counts = stream.counts
    assert 0.008 < counts.repeated / counts.records < 0.013
    assert 0.005 < counts.late / counts.records < 0.02


def test_only_repetitions_share_an_event_time_within_a_flight(events: pa.Table) -> None:
    frame = events.to_pandas()
    frame = frame[(frame.broken == 0) & ~frame.null_value & ~frame.repeated]
    assert not frame.duplicated([*KEY_FIELDS, "event_time"]).any()


def test_null_values_are_the_last_word_on_their_flight(events: pa.Table) -> None:
    frame = events.to_pandas()
    frame = frame[frame.broken == 0]
    frame = frame.assign(key=key_texts(events).take(pa.array(frame.index)).to_pylist(), arrival=frame.index)
    last_valued = frame[~frame.null_value].groupby("key").arrival.max()
    first_null = frame[frame.null_value].groupby("key").arrival.min()
    assert len(first_null) > 100
    assert (first_null > last_valued[first_null.index]).all()


def test_some_flights_move_there_and_back(events: pa.Table) -> None:
    """An estimate past midnight that did not come true: the row returns to where it was before."""
    frame = events.to_pandas()
    frame = frame[(frame.broken == 0) & ~frame.late]
    delayed = frame[(frame.status == "delayed") & (frame.day != frame.flight_date)]
    departed = frame[(frame.status == "departed") & (frame.day == frame.flight_date)]
    there_and_back = delayed.merge(departed, on=list(KEY_FIELDS))
    assert len(there_and_back) > 0


def test_records_say_what_the_columns_say(batches: list[EventBatch]) -> None:
    for batch in batches[:3]:
        for (_, value), row in zip(batch.records, batch.events.to_pylist(), strict=True):
            if row["broken"] or row["null_value"]:
                continue
            assert value is not None
            said = json.loads(value)
            assert said.pop("_deleted", False) is row["deleted"]
            for name in ("sched_dep", "dep", "arr"):
                instant = None if said[name] is None else _instant(said[name])
                assert instant == (
                    None if row[name] is None else np.datetime64(row[name].replace(tzinfo=None), "us")
                )
                del said[name]
            assert said == {name: row[name] for name in said}
            assert said.keys() | {"sched_dep", "dep", "arr"} == set(TABLE_SCHEMA.names)


def test_kafka_keys_are_text_or_json_and_the_same_for_all_of_a_flight(batches: list[EventBatch]) -> None:
    forms: Counter[str] = Counter()
    for batch in batches[:3]:
        texts = key_texts(batch.events).to_pylist()
        for (key, _), row, text in zip(batch.records, batch.events.to_pylist(), texts, strict=True):
            if row["broken"]:
                continue
            assert key is not None
            if row["carrier"] in JSON_KEYED:
                assert json.loads(key) == {name: row[name] for name in KEY_FIELDS}
                forms["json"] += 1
            else:
                assert key.decode() == text
                forms["text"] += 1
    assert forms["json"] > 1000
    assert forms["text"] > 1000


def test_broken_records_are_broken_in_every_way(batches: list[EventBatch], events: pa.Table) -> None:
    broken = broken_by_kind(events)
    assert broken.keys() == {kind.name.lower() for kind in BREAKAGES}
    assert max(broken.values()) - min(broken.values()) <= 1
    seen: Counter[str] = Counter()
    for batch in batches:
        for (key, value), kind in zip(batch.records, batch.events["broken"].to_pylist(), strict=True):
            if kind:
                seen[_what_is_wrong(key, value)] += 1
    assert seen == broken


def _what_is_wrong(key: bytes | None, value: bytes | None) -> str:
    if value is None:
        assert key is None
        return "null_without_key"
    try:
        said = json.loads(value)
    except ValueError:
        return "not_json"
    if not isinstance(said, dict):
        return "not_an_object"
    if not said.keys() & set(KEY_FIELDS):
        return "no_key_fields"
    if said["event_time"] is None:
        return "no_event_time"
    if not isinstance(said["event_time"], int):
        return "mistyped_event_time"
    if not isinstance(said["distance"], int | float):
        return "mistyped_distance"
    assert said["day"].startswith("../"), value
    return "partition_outside_table"


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not(batches: list[EventBatch]) -> None:
    again = [batch.records for batch in event_stream(1, seed=7)]
    assert again == [batch.records for batch in batches]
    other = next(event_stream(1, seed=8)).records
    assert other != batches[0].records


def test_batch_size_does_not_change_the_stream(batches: list[EventBatch]) -> None:
    large = next(event_stream(1, seed=7, batch_records=10_000))
    small = [record for batch in batches[:3] for record in batch.records]
    assert large.records[: len(small)] == small[:10_000]
    assert len(large.records) == 10_000


def test_configuration_template_is_read_and_names_the_columns_of_the_events() -> None:
    config = load_config(DEMO_FOLDER / "flights.yaml", env={})
    assert config.table.record_key == KEY_FIELDS
    assert config.table.partition == (PARTITION_FIELD,)
    assert config.table.ordering == ORDERING_FIELD
    assert config.input.delete_field == DELETE_FIELD
    assert config.kafka.embedded
    schema = TableSchema.from_avro(config.table.schema.read_text(), "flights")
    assert schema.arrow.equals(TABLE_SCHEMA)
