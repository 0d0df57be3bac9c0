"""The definition of the column stats in `index.json`."""

from __future__ import annotations

import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.errors import CorruptFileError, CutOffFileError, UnsupportedTableError
from tidemark.hudi_format.index_definitions import (
    COLUMN_STATS,
    INDEX_DEFINITIONS_PATH,
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


def test_a_file_that_is_cut_off_anywhere_is_read_again() -> None:
    """Hudi writes it in place. A name with a letter of two bytes is cut in the middle, too."""
    storage = InMemoryStorage()
    write_index_definitions(storage, {COLUMN_STATS: column_stats_definition(["größe"])})
    whole = storage.read(INDEX_DEFINITIONS_PATH)
    whole = whole.replace(b"gr\\u00f6\\u00dfe", "größe".encode())
    storage.replace(INDEX_DEFINITIONS_PATH, whole)
    assert "größe" in stats_columns(read_index_definitions(storage))
    for length in range(len(whole)):
        storage.replace(INDEX_DEFINITIONS_PATH, whole[:length])
        with pytest.raises(CutOffFileError, match="index.json.* another engine writes it now"):
            read_index_definitions(storage)


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
