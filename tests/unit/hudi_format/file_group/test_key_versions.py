"""The versions of one key in a slice: in order, bounded, and merged as a reader of the whole slice merges."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.file_group.test_slice_reader import (
    COMMIT,
    EVENT,
    ORDERING,
    SCHEMA,
    Log,
    Row,
    instant,
    slices,
    stored_slice,
)
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.file_group.key_versions import KeyReader
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.table_config import MergeMode

BASE: list[Row] = [("a", 1, "a1", False), ("b", 1, "b1", False), ("c", 1, "c1", False)]
LOGS = [
    Log([("a", 2, "a2", False)], [("b", 2)]),
    Log([("a", 1, "older", False), ("d", 1, "d1", False)], [("c", None)]),
]


def reader(storage: InMemoryStorage, mode: MergeMode = EVENT) -> KeyReader:
    return KeyReader(storage, SCHEMA, mode, ORDERING if mode is EVENT else None, file_bytes_max=1 << 20)


def test_versions_are_told_in_the_order_of_merging_and_the_one_that_is_read_is_marked() -> None:
    storage = InMemoryStorage()
    told = reader(storage).versions(stored_slice(storage, BASE, LOGS, EVENT), "a")
    assert [(each.is_base, each.instant, each.row and each.row["v"]) for each in told.versions] == [
        (True, instant(0), "a1"),
        (False, instant(1), "a2"),
        (False, instant(2), "older"),
    ]
    assert (told.merged and told.merged["v"], told.winner) == ("a2", 1)


def test_deletes_tell_up_to_which_ordering_value_they_reach() -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(storage, BASE, LOGS, EVENT)
    for key, ordering in (("b", 2), ("c", None)):
        told = reader(storage).versions(file_slice, key)
        last = told.versions[-1]
        assert (last.row, last.deletes, last.ordering) == (None, True, ordering)
        assert (told.merged, told.winner) == (None, None)


def test_a_key_that_is_not_there_has_no_versions() -> None:
    storage = InMemoryStorage()
    told = reader(storage).versions(stored_slice(storage, BASE, LOGS, EVENT), "nobody")
    assert (told.versions, told.merged) == ((), None)


def test_a_log_file_that_is_too_large_is_named_and_nothing_is_claimed() -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(storage, BASE, LOGS, EVENT)
    told = replace(reader(storage), file_bytes_max=10).versions(file_slice, "a")
    assert told.left_out == file_slice.log_files
    assert (told.merged, [each.row and each.row["v"] for each in told.versions]) == (None, ["a1"])


def test_reading_ends_when_it_is_told_to() -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(storage, BASE, LOGS, EVENT)

    def stop() -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        replace(reader(storage), check=stop).versions(file_slice, "a")


def test_a_slice_that_was_cleaned_away_is_missing() -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(storage, BASE, LOGS, EVENT)
    storage.delete(f"eu/{file_slice.base_file}")
    with pytest.raises(FileMissingError):
        reader(storage).versions(file_slice, "a")


@settings(max_examples=60, deadline=None)
@given(slices(), st.sampled_from([EVENT, COMMIT]))
def test_each_key_merges_as_in_the_whole_slice(
    made: tuple[list[Row] | None, list[Log]], mode: MergeMode
) -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(storage, *made, mode)
    ordering = ORDERING if mode is EVENT else None
    whole = {row["id"]: row for row in read_slice(storage, file_slice, SCHEMA, mode, ordering).to_pylist()}
    for key in (f"k{number}" for number in range(6)):
        told = reader(storage, mode).versions(file_slice, key)
        assert told.merged == whole.get(key)
        if told.winner is not None:
            assert told.versions[told.winner].row == told.merged
