"""Base files: what is in the Parquet file and its footer, and reading parts of it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.bloom import BloomSpec, bloom_filter_text
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.file_group.base_file import (
    attach_meta_columns,
    min_max_key,
    read_base_file,
    rewritable_rows,
    write_base_file,
)
from tidemark.hudi_format.schema import META_COLUMNS, SchemaError, TableSchema, cast_rows

RECORD = pa.struct([pa.field("a", pa.string()), pa.field("n", pa.decimal128(20, 3))])
SCHEMA = TableSchema.from_arrow(
    "t",
    pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("i", pa.int32()),
            pa.field("f", pa.float32()),
            pa.field("raw", pa.binary()),
            pa.field("day", pa.date32()),
            pa.field("ts", pa.timestamp("us", "UTC")),
            pa.field("local", pa.timestamp("us")),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("tags", pa.list_(pa.field("element", pa.string()))),
            pa.field("attrs", pa.map_(pa.string(), pa.int64())),
            pa.field("st", RECORD),
        ]
    ),
)
MOMENT = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
FULL = {
    "id": "a",
    "i": 1,
    "f": 1.5,
    "raw": b"\x00\xff",
    "day": date(2024, 5, 6),
    "ts": MOMENT,
    "local": MOMENT.replace(tzinfo=None),
    "price": Decimal("12.34"),
    "tags": ["x", None],
    "attrs": [("k", 1), ("l", None)],
    "st": {"a": "b", "n": Decimal("1.000")},
}


def rows_of(keys: list[str]) -> pa.Table:
    rows = [{**dict.fromkeys(FULL), "id": key} for key in keys]
    user = pa.Table.from_pylist([FULL, *rows], schema=SCHEMA.arrow)
    return attach_meta_columns(user, user.column("id"), "eu", "20260101000000000", 0, "name.parquet")


def test_every_type_comes_back_and_the_types_are_hudis() -> None:
    rows = rows_of(["b"])
    content = write_base_file(rows, SCHEMA)
    file = pq.ParquetFile(pa.BufferReader(content))
    assert cast_rows(file.read(), SCHEMA.arrow_with_meta).equals(cast_rows(rows, SCHEMA.arrow_with_meta))
    columns = {column.path.split(".")[0]: column for column in (file.schema.column(i) for i in range(15))}
    assert columns["price"].physical_type == "FIXED_LEN_BYTE_ARRAY"
    assert columns["price"].length == 5
    assert str(columns["ts"].logical_type) == (
        "Timestamp(isAdjustedToUTC=true, timeUnit=microseconds, is_from_converted_type=false, "
        "force_set_converted_type=false)"
    )
    assert columns["local"].logical_type.to_json().find('"isAdjustedToUTC": false') > 0
    assert columns["id"].converted_type == "UTF8"
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_footer_has_schema_and_key_range_but_nothing_of_arrows() -> None:
    content = write_base_file(rows_of(["zz", "B"]), SCHEMA, bloom=BloomSpec())
    footer = {
        key.decode(): value.decode()
        for key, value in pq.read_metadata(pa.BufferReader(content)).metadata.items()
    }
    assert footer["parquet.avro.schema"] == SCHEMA.avro_with_meta_json
    assert footer["writer.model.name"] == "avro"
    assert (footer["hoodie_min_record_key"], footer["hoodie_max_record_key"]) == ("B", "zz")
    assert footer["hoodie_bloom_filter_type_code"] == "SIMPLE"
    keys = pa.array(["zz", "B", "a"])
    assert footer["org.apache.hudi.bloomfilter"] == bloom_filter_text(keys, BloomSpec())
    assert "ARROW:schema" not in footer


def test_file_of_no_rows_is_readable_and_has_no_key_range() -> None:
    storage = InMemoryStorage()
    storage.create(
        "f.parquet", write_base_file(SCHEMA.arrow_with_meta.empty_table(), SCHEMA, bloom=BloomSpec())
    )
    assert read_base_file(storage, "f.parquet").num_rows == 0
    footer = pq.read_metadata(pa.BufferReader(storage.read("f.parquet"))).metadata
    assert b"hoodie_min_record_key" not in footer


def test_key_range_is_in_javas_order_of_strings() -> None:
    # U+FF5E is above the surrogates in UTF-8, below them in UTF-16.
    assert min_max_key(pa.array(["～", "\U0001f600", "a"])) == ("a", "～")
    assert min_max_key(pa.array(["\U0001f600", "b"])) == ("b", "\U0001f600")
    assert min_max_key(pa.chunked_array([["b"], ["a", "é"]])) == ("a", "é")


def test_row_groups_follow_the_size_limit() -> None:
    rows = rows_of([f"k{number}" for number in range(999)])
    content = write_base_file(rows, SCHEMA, row_group_bytes=rows.nbytes // 4)
    assert 4 <= pq.read_metadata(pa.BufferReader(content)).num_row_groups <= 5


def test_reading_picks_columns() -> None:
    storage = InMemoryStorage()
    storage.create("eu/f.parquet", write_base_file(rows_of(["b", "c", "d"]), SCHEMA))
    assert read_base_file(storage, "eu/f.parquet", ["i", "no_such"]).column_names == ["i"]


def test_bad_files_are_named() -> None:
    storage = InMemoryStorage()
    with pytest.raises(FileMissingError, match=r"none\.parquet"):
        read_base_file(storage, "none.parquet")
    storage.create("bad.parquet", b"PAR1 nothing PAR1")
    with pytest.raises(CorruptFileError, match=r"bad\.parquet"):
        read_base_file(storage, "bad.parquet")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1]}), sink)
    storage.create("foreign.parquet", sink.getvalue().to_pybytes())
    with pytest.raises(CorruptFileError, match="_hoodie_record_key"):
        read_base_file(storage, "foreign.parquet")


def test_rows_without_a_required_column_are_refused() -> None:
    with pytest.raises(SchemaError, match="column id"):
        write_base_file(rows_of([]).drop_columns(["id"]), SCHEMA)


def test_a_file_is_not_written_anew_without_its_columns() -> None:
    wide = TableSchema.from_arrow(
        "t", pa.schema([("id", pa.string()), ("v", pa.int64()), ("extra", pa.string())])
    )
    meta = {name: ["x"] for name in META_COLUMNS}
    rows = pa.table({**meta, "id": ["k"], "v": [1], "extra": ["theirs"]}, schema=wide.arrow_with_meta)
    storage = InMemoryStorage()
    storage.create("p/f.parquet", write_base_file(rows, wide))
    assert rewritable_rows(storage, "p/f.parquet", wide).to_pylist() == rows.to_pylist()
    for lost, fields in (
        ("extra", [("id", pa.string()), ("v", pa.int64())]),
        (r"v \(int64 → int32\)", [("id", pa.string()), ("v", pa.int32()), ("extra", pa.string())]),
    ):
        narrow = TableSchema.from_arrow("t", pa.schema(fields))
        with pytest.raises(SchemaError, match=rf"p/f\.parquet has columns .*\({lost}\)"):
            rewritable_rows(storage, "p/f.parquet", narrow)
