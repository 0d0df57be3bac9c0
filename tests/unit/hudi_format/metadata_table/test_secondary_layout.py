"""Which secondary indexes a table has, of which column, in how many groups; others are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.hudi_format.metadata_tables import IndexedTable
from tests.unit.hudi_format.table_services import test_merge_index_shard as index_shards
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import read_index_definitions, write_index_definitions
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import ENTRY_VALUE
from tidemark.hudi_format.metadata_table.secondary_layout import SecondaryLayout, secondary_layouts
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import read_table_config, update_properties

NAME = "secondary_index_city"
V2 = {"indexName": NAME, "sourceFields": ["city"], "version": "V2"}


def table_with(definition: dict[str, Any] | None, *groups: int) -> IndexedTable:
    table = IndexedTable()
    definitions = read_index_definitions(table.storage)
    if definition is not None:
        write_index_definitions(table.storage, {**definitions, NAME: definition})
    for group in groups:
        name = f".secondary-index-city-{group:04d}-0_00000000000000001.log.1_0-0-0"
        table.storage.create(f".hoodie/metadata/{NAME}/{name}", b"#")
    update_properties(table.storage, {keys.METADATA_PARTITIONS: f"files,record_index,{NAME}"})
    return table


def layouts(table: IndexedTable) -> tuple[SecondaryLayout, ...]:
    validity = MetadataTableSnapshot.load(table.storage).validity
    return secondary_layouts(table.storage, read_table_config(table.storage), validity)


def test_the_layout_is_read_from_definition_and_folder() -> None:
    assert layouts(table_with(V2, 0, 1, 2)) == (SecondaryLayout(NAME, "city", 3),)
    assert layouts(IndexedTable()) == ()


@pytest.mark.parametrize(
    ("definition", "groups", "reason"),
    [
        (None, [0], "without a definition"),
        ({**V2, "version": "V1"}, [0], "version V1"),
        ({**V2, "sourceFields": ["a", "b"]}, [0], "columns \\['a', 'b'\\]"),
        (V2, [], "not numbered from 0"),
        (V2, [0, 2], "not numbered from 0"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(
    definition: dict[str, Any] | None, groups: list[int], reason: str
) -> None:
    with pytest.raises(UnsupportedTableError, match=f"{NAME} .*{reason}"):
        layouts(table_with(definition, *groups))


@pytest.mark.parametrize(
    ("field", "reason"),
    [(pa.field("town", pa.string()), "none of the table's"), (pa.field("city", pa.float64()), "type double")],
)
def test_a_column_that_can_have_no_entries_is_refused(field: pa.Field, reason: str) -> None:
    layout = SecondaryLayout(NAME, "city", 1)
    with pytest.raises(UnsupportedTableError, match=reason):
        layout.check_schema(TableSchema.from_arrow("t", pa.schema([field])))
    layout.check_schema(TableSchema.from_arrow("t", pa.schema([pa.field("city", pa.int64())])))


def test_a_compaction_keeps_the_newest_entry_of_each_key(tmp_path: Path) -> None:
    storage = IndexedTable().storage
    group = "secondary-index-city-0000-0"
    logs = [
        index_shards.put_log(
            storage, 0, {"rome$a": ENTRY_VALUE, "\x00$b": ENTRY_VALUE}, partition=NAME, file_id=group
        ),
        index_shards.put_log(
            storage, 1, {"oslo$a": ENTRY_VALUE, "rome$a": None}, partition=NAME, file_id=group
        ),
    ]
    reader, counts = index_shards.merge(storage, logs, tmp_path, base=None, partition=NAME, file_id=group)
    assert index_shards.content_of(reader) == {"\x00$b": ENTRY_VALUE, "oslo$a": ENTRY_VALUE}
    assert counts.rows == 2
