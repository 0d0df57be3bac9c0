"""The lanes of a table with a partitioned record index are computed by the function that its topics are made
for.
"""

from __future__ import annotations

import re

import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.index_definitions import (
    RECORD_INDEX,
    IndexKind,
    record_index_definition,
    write_index_definitions,
)
from tidemark.hudi_format.partitioned_lanes import LANE_FUNCTION_PATH
from tidemark.index_assigner.slots.lane_function import check_lane_function, keep_lane_function
from tidemark.record_formats.errors import SetupError


def table_of(kind: IndexKind) -> InMemoryStorage:
    storage = InMemoryStorage()
    write_index_definitions(storage, {RECORD_INDEX: record_index_definition(kind)})
    return storage


def test_the_first_start_stores_the_name_and_the_next_ones_leave_it() -> None:
    storage = table_of(IndexKind.PARTITIONED)
    check_lane_function(storage)
    assert not storage.exists(LANE_FUNCTION_PATH), "a rehearsal writes nothing"
    keep_lane_function(storage)
    # Stored positions belong to it, so the name never changes without the function.
    assert storage.read(LANE_FUNCTION_PATH) == b"java-hash-sum"
    keep_lane_function(storage)
    check_lane_function(storage)


@pytest.mark.parametrize("start", [keep_lane_function, check_lane_function])
def test_another_function_is_refused_with_the_file_and_the_way_out(start) -> None:
    storage = table_of(IndexKind.PARTITIONED)
    storage.create(LANE_FUNCTION_PATH, b"murmur3\n")
    with pytest.raises(SetupError, match=rf"(?s){re.escape(LANE_FUNCTION_PATH)}.*'murmur3'.*--new-ledger"):
        start(storage)
    assert storage.read(LANE_FUNCTION_PATH) == b"murmur3\n"


def test_a_global_index_has_none() -> None:
    storage = table_of(IndexKind.GLOBAL)
    keep_lane_function(storage)
    assert not storage.exists(LANE_FUNCTION_PATH)
    storage.create(LANE_FUNCTION_PATH, b"murmur3")
    keep_lane_function(storage)
