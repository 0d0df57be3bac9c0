"""The definition of the column stats in `index.json`."""

from __future__ import annotations

import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.errors import CorruptFileError, UnsupportedTableError
from tidemark.hudi_format.index_definitions import (
    COLUMN_STATS,
    RECORD_INDEX,
    STATS_META_COLUMNS,
    IndexKind,
    column_stats_definition,
    read_index_definitions,
    record_index_definition,
    record_index_kind,
    stats_columns,
    write_index_definitions,
)


def test_the_columns_of_a_stored_definition_are_found() -> None:
    storage = InMemoryStorage()
    assert stats_columns(read_index_definitions(storage)) == []
    write_index_definitions(storage, {COLUMN_STATS: column_stats_definition(["b", "a"])})
    assert stats_columns(read_index_definitions(storage)) == [*STATS_META_COLUMNS, "b", "a"]


@pytest.mark.parametrize("kind", list(IndexKind))
def test_the_kind_of_a_stored_record_index_is_found(kind: IndexKind) -> None:
    storage = InMemoryStorage()
    assert record_index_kind(read_index_definitions(storage)) is IndexKind.GLOBAL
    write_index_definitions(storage, {RECORD_INDEX: record_index_definition(kind)})
    assert record_index_kind(read_index_definitions(storage)) is kind


@pytest.mark.parametrize(("version", "said"), [("V1", "has version V1"), (None, "has version none")])
def test_records_of_another_layout_are_refused(version: str | None, said: str) -> None:
    with pytest.raises(UnsupportedTableError, match=f"{said}; V2 is served"):
        stats_columns({COLUMN_STATS: {**column_stats_definition(["a"]), "version": version}})


def test_a_definition_without_columns_is_damage() -> None:
    with pytest.raises(CorruptFileError, match="the definition of column_stats"):
        stats_columns({COLUMN_STATS: {"version": "V2"}})
