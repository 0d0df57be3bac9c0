"""Values that are too long for a secondary index become dead letters; the index is read from the table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from testing.clock import ManualClock
from tests.unit.index_assigner.shuffle_world import order, rules
from tidemark.hudi_format.index_definitions import (
    INDEX_DEFINITIONS_PATH,
    column_stats_definition,
    secondary_index_definition,
    write_index_definitions,
)
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.index_assigner.shuffle.indexed_values import DefinedIndexes
from tidemark.index_assigner.shuffle.keyed_parts import KeyedRows
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.kafka.ports import Message

INDEX = "secondary_index_by_note"


def defined(storage: LocalStorage, column: str = "note") -> None:
    definitions = {
        "column_stats": column_stats_definition(["at"]),
        INDEX: secondary_index_definition(INDEX, column),
    }
    write_index_definitions(storage, definitions)


def keyed(columns: dict[str, str], *values: bytes) -> KeyedRows:
    keyer = RecordKeyer(replace(rules(), indexed_columns=lambda: columns))
    messages = [Message("in", 0, at, b"k", value, (), 1) for at, value in enumerate(values)]
    return keyer.key_records(messages)


def test_a_value_at_the_limit_is_a_row_and_a_longer_one_a_dead_letter():
    # The composite key of "n…" and "a" is the value, "$" and "a".
    fits, long = order("a", note="n" * 32_765), order("a", 2, note="n" * 32_766)
    made = keyed({INDEX: "note"}, fits, long, order("b"))
    assert [row["_tm_key"] for row in made.rows.to_pylist()] == ["a", "b"]
    (refused,) = made.refused
    assert (refused.position, refused.reason) == (1, DeadLetterReason.INDEXED_VALUE_TOO_LONG)
    assert INDEX in refused.detail
    assert "note" in refused.detail
    assert "32767" in refused.detail


def test_escaping_counts_and_so_does_the_record_key():
    made = keyed({INDEX: "note"}, order("a", note="$" * 16_383), order("a" * 8_000, note="n" * 25_000))
    assert [refused.position for refused in made.refused] == [0, 1]


def test_without_the_index_on_that_column_the_record_is_a_row():
    long = order("a", note="n" * 40_000)
    assert not keyed({}, long).refused
    assert not keyed({INDEX: "day"}, long).refused
    assert not keyed({INDEX: "not there"}, long).refused


def test_a_delete_has_no_value_that_is_indexed_and_a_bad_key_has_its_own_reason():
    made = keyed(
        {INDEX: "note"},
        order("a", note="n" * 40_000, _deleted=True),
        order("", note="n" * 40_000),
    )
    assert [row["_tm_key"] for row in made.rows.to_pylist()] == ["a"]
    assert [refused.reason for refused in made.refused] == [DeadLetterReason.NULL_KEY]


def test_the_definitions_are_read_again_a_second_later(tmp_path: Path):
    storage, clock = LocalStorage(tmp_path), ManualClock()
    indexes = DefinedIndexes(storage, clock)
    assert indexes() == {}
    defined(storage)
    clock.sleep(0.5)
    assert indexes() == {}
    clock.sleep(0.5)
    assert indexes() == {INDEX: "note"}
    (tmp_path / INDEX_DEFINITIONS_PATH).unlink()
    clock.sleep(1.0)
    assert indexes() == {}


def test_definitions_that_cannot_be_read_change_nothing(tmp_path: Path):
    storage, clock = LocalStorage(tmp_path), ManualClock()
    defined(storage)
    indexes = DefinedIndexes(storage, clock)
    assert indexes() == {INDEX: "note"}
    for damaged in (b"{", json.dumps({"indexDefinitions": {INDEX: {"version": "V1"}}}).encode()):
        storage.replace(INDEX_DEFINITIONS_PATH, damaged)
        clock.sleep(1.0)
        assert indexes() == {INDEX: "note"}
