"""Batches whose bytes were damaged on the way: an error that says so, never the end of the process."""

from __future__ import annotations

import re
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from tidemark.epoch_protocol.batches import (
    DATA_COLUMNS,
    INDEX_COLUMNS,
    KEYED_COLUMNS,
    TOMBSTONE_COLUMNS,
    BatchHeader,
    decode_batch,
    encode_batch,
    with_user_columns,
)
from tidemark.epoch_protocol.errors import UnknownEntryError

USER = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("n", pa.int64()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("sums", pa.map_(pa.string(), pa.int64())),
        pa.field("rec", pa.struct([("x", pa.binary()), ("y", pa.list_(pa.decimal128(38, 9)))])),
    ]
)
LAYOUTS = {
    "keyed": with_user_columns(KEYED_COLUMNS, USER),
    "data": with_user_columns(DATA_COLUMNS, USER),
    "index": INDEX_COLUMNS,
    "tombstones": TOMBSTONE_COLUMNS,
}


def encoded(schema: pa.Schema) -> bytes:
    rows = [
        {
            "_tm_key": f"k{i}",
            "_tm_shard": i,
            "_tm_partition": f"p{i % 3}",
            "_tm_file_id": f"f{i % 5}-0",
            "_tm_ordering": i,
            "_tm_exact": True,
            "_tm_expires_ms": i,
            "_tm_op": 0,
            "id": f"k{i}",
            "tags": ["a", "b"] * i,
            "n": i,
            "price": Decimal(i),
            "day": i,
            "at": i,
            "sums": [("a", i)] * (i % 3),
            "rec": {"x": b"x" * i, "y": [Decimal(i)] * (i % 4)} if i % 2 else None,
        }
        for i in range(20)
    ]
    content: bytes = encode_batch(pa.RecordBatch.from_pylist(rows, schema=schema)).to_pybytes()
    return content


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damaged_bytes_are_an_error_or_a_batch_whose_columns_can_be_used(layout: str) -> None:
    whole, dice = encoded(LAYOUTS[layout]), Random(11)
    refused: list[str] = []
    for _ in range(1_000):
        damaged = bytearray(whole)
        for _ in range(dice.randrange(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        try:
            batch = decode_batch(bytes(damaged[: dice.choice([len(damaged), dice.randrange(len(damaged))])]))
        except UnknownEntryError as error:
            refused.append(str(error))
            continue
        for column in batch.columns:
            # Reads every value, as the stages do; a day or an instant may be none that Python has.
            plain = column.view(pa.int32()) if pa.types.is_date32(column.type) else column
            plain = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else plain
            len(plain.to_pylist())
        assert encode_batch(batch.take(pa.array(range(batch.num_rows)))).size
    assert len(refused) > 250
    assert [each for each in refused if not re.search("Arrow stream|compressed inside", each)] == []


@pytest.mark.parametrize("header", [name for name, _ in BatchHeader("n", 0, 1, "s").encode()])
def test_a_header_without_a_value_is_an_error(header: str) -> None:
    whole = BatchHeader("n", 0, 1, "s").encode()
    wrong = [(name, None if name == header else value) for name, value in whole]
    with pytest.raises(UnknownEntryError, match="missing or unreadable"):
        BatchHeader.decode(wrong)  # type: ignore[arg-type]
