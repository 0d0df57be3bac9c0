"""Batches whose bytes were damaged on the way: an error that says so, never the end of the process."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from epoch_protocol.batches import KEYED_COLUMNS, BatchHeader, decode_batch, encode_batch, with_user_columns
from epoch_protocol.errors import UnknownEntryError

USER = pa.schema(
    [pa.field("id", pa.string()), pa.field("tags", pa.list_(pa.string())), pa.field("n", pa.int64())]
)


def encoded() -> bytes:
    rows = [
        {
            "_tm_key": f"k{i}",
            "_tm_shard": i,
            "_tm_partition": f"p{i % 3}",
            "_tm_ordering": i,
            "_tm_op": 0,
            "id": f"k{i}",
            "tags": ["a", "b"] * i,
            "n": i,
        }
        for i in range(20)
    ]
    content: bytes = encode_batch(
        pa.RecordBatch.from_pylist(rows, schema=with_user_columns(KEYED_COLUMNS, USER))
    ).to_pybytes()
    return content


def test_damaged_bytes_are_an_error_or_a_batch_whose_columns_can_be_used() -> None:
    whole, dice = encoded(), Random(11)
    refused = 0
    for _ in range(4_000):
        damaged = bytearray(whole)
        for _ in range(dice.randrange(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        try:
            batch = decode_batch(bytes(damaged[: dice.choice([len(damaged), dice.randrange(len(damaged))])]))
        except UnknownEntryError:
            refused += 1
            continue
        for column in batch.columns:
            # Reads every value, as the stages do.
            len(column.to_pylist())
    assert refused > 1_000


@pytest.mark.parametrize("header", [name for name, _ in BatchHeader("n", 0, 1, "s").encode()])
def test_a_header_without_a_value_is_an_error(header: str) -> None:
    whole = BatchHeader("n", 0, 1, "s").encode()
    wrong = [(name, None if name == header else value) for name, value in whole]
    with pytest.raises(UnknownEntryError):
        BatchHeader.decode(wrong)  # type: ignore[arg-type]
