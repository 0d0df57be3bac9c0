"""Rows as messages of bounded size, and the ranges that the ledger entry names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tidemark.epoch_protocol.batches import KEY, chained_checksum, decode_batch
from tidemark.epoch_protocol.entries import Topic
from tidemark.epoch_protocol.messages import (
    EncodedBatch,
    by_partition,
    message_values,
    numbered,
    produced_ranges,
)


def test_rows_of_a_partition_stay_in_order() -> None:
    order, ranges = by_partition(np.array([2, 0, 2, 0, 2], np.int32))
    assert order.tolist() == [1, 3, 0, 2, 4]
    assert [tuple(each) for each in ranges] == [(0, 0, 2), (2, 2, 5)]


def test_no_rows_have_no_partition() -> None:
    order, ranges = by_partition(np.array([], np.int32))
    assert (len(order), ranges) == (0, [])


def rows(*keys: str) -> pa.RecordBatch:
    return pa.record_batch({KEY: pa.array(keys)})


@pytest.mark.parametrize("large", [0, 3, 7])
def test_a_row_that_fits_into_no_message_is_left_out_and_named(large: int) -> None:
    keys = [f"k{number}" for number in range(8)]
    keys[large] = "k" * 5_000
    refused: list[tuple[int, int]] = []
    values = list(message_values(rows(*keys), 1 << 20, 2_000, lambda *row: refused.append(row)))
    read = [key for _, value in values for key in decode_batch(value).column(KEY).to_pylist()]
    assert read == [key for key in keys if len(key) < 10]
    assert sum(count for count, _ in values) == 7
    assert max(len(value) for _, value in values) <= 2_000
    ((position, size),) = refused
    assert position == large
    assert size > 5_000


def test_dictionaries_of_other_rows_do_not_make_a_message_too_large() -> None:
    paths = pa.array([f"day={number:0500d}" for number in range(20)]).dictionary_encode()
    batch = pa.record_batch({KEY: pa.array([str(number) for number in range(20)]), "path": paths})
    refused: list[tuple[int, int]] = []
    values = list(message_values(batch, 1 << 20, 2_000, lambda *row: refused.append(row)))
    assert refused == []
    assert pa.concat_batches([decode_batch(value) for _, value in values], None).num_rows == 20


def test_batches_are_numbered_within_their_topic_partition() -> None:
    places = [(Topic.DATA, 0), (Topic.DATA, 1), (Topic.DATA, 0), (Topic.INDEX, 0)]
    batches = [EncodedBatch(*place, bytes([number]), number + 1) for number, place in enumerate(places)]
    assert [each.sequence for each in numbered(batches, "n", "s")] == [0, 0, 1, 0]
    produced = produced_ranges(batches, [5, 9, 7, 2])
    assert [(p.topic, p.partition, p.first, p.last, p.batches, p.records) for p in produced] == [
        (Topic.DATA, 0, 5, 7, 2, 4),
        (Topic.DATA, 1, 9, 9, 1, 2),
        (Topic.INDEX, 0, 2, 2, 1, 4),
    ]
    assert produced[0].checksum == chained_checksum([b"\x00", b"\x02"])
