"""What a writer does with rows before it writes: the last one per key counts, work is spread over tasks."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tidemark.epoch_protocol.batches import DATA_COLUMNS, DataOp, with_user_columns
from tidemark.epoch_protocol.entries import Produced, Topic
from tidemark.hudi_format.schema import TableSchema
from tidemark.ledger_client.named_batches import NamedBatch, NamedRange
from tidemark.stream_writer.data_task import last_rows
from tidemark.stream_writer.epoch_tasks import PartitionWork, spread, task_count

USER = pa.schema([("id", pa.string()), ("v", pa.int64())])
SCHEMA = TableSchema.from_arrow("t", USER)
WIDER = TableSchema.from_arrow("t", pa.schema([*USER, ("note", pa.string())]))
Event = tuple[str, str, str, int, DataOp]
"""(partition path, file id, key, value, op)."""


def batch(order: int, sequence: int, events: list[Event], user: pa.Schema = USER) -> NamedBatch:
    rows: list[dict[str, Any]] = [
        {
            "_tm_key": key,
            "_tm_partition": partition,
            "_tm_file_id": file_id,
            "_tm_ordering": value,
            "_tm_op": int(op),
            **({} if op is DataOp.DELETE else {"id": key, "v": value}),
        }
        for partition, file_id, key, value, op in events
    ]
    table = pa.Table.from_pylist(rows, schema=with_user_columns(DATA_COLUMNS, user))
    found = table.combine_chunks().to_batches()
    made = found[0] if found else pa.RecordBatch.from_pylist([], schema=table.schema)
    return NamedBatch(order, sequence, 0, made)


@pytest.mark.parametrize("seed", range(30))
def test_the_last_row_of_each_key_and_file_group_counts(seed: int) -> None:
    dice = random.Random(seed)
    events: list[Event] = [
        (
            dice.choice(["", "p", "q"]),
            dice.choice(["f1", "f2"]),
            f"k{dice.randrange(6)}",
            number,
            dice.choice(list(DataOp)),
        )
        for number in range(dice.randint(0, 60))
    ]
    model: dict[tuple[str, str], dict[str, tuple[int, DataOp]]] = {}
    for partition, file_id, key, value, op in events:
        model.setdefault((partition, file_id), {}).pop(key, None)
        model[partition, file_id][key] = (value, op)
    first: dict[tuple[str, str], dict[str, DataOp]] = {}
    for partition, file_id, key, _, op in events:
        first.setdefault((partition, file_id), {}).setdefault(key, op)
    cuts = sorted(dice.sample(range(len(events) + 1), min(3, len(events) + 1)))
    pieces = [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True)]
    groups = list(last_rows([batch(n, 0, piece) for n, piece in enumerate(pieces)], SCHEMA))
    assert [(g.partition_path, g.file_id) for g in groups] == sorted(model)
    for group in groups:
        expected = model[group.partition_path, group.file_id]
        words = first[group.partition_path, group.file_id].values()
        assert group.goes_on == any(op is not DataOp.INSERT for op in words)
        deleted = dict(zip(group.deleted_keys.to_pylist(), group.deleted_ordering.to_pylist(), strict=True))
        assert deleted == {k: v for k, (v, op) in expected.items() if op is DataOp.DELETE}
        kept = [(k, v) for k, (v, op) in expected.items() if op is not DataOp.DELETE]
        upserts = group.upserts
        assert list(zip(upserts["id"].to_pylist(), upserts["v"].to_pylist(), strict=True)) == kept


def test_batches_without_rows_make_no_file_group() -> None:
    assert list(last_rows([], SCHEMA)) == []
    assert list(last_rows([batch(0, 0, []), batch(0, 1, [])], SCHEMA)) == []


def test_rows_of_an_older_schema_get_nulls_in_new_columns() -> None:
    old = batch(0, 0, [("p", "f", "a", 1, DataOp.INSERT)])
    new = batch(1, 0, [("p", "f", "b", 2, DataOp.INSERT)], WIDER.arrow)
    (group,) = last_rows([old, new], WIDER)
    assert group.upserts["note"].to_pylist() == [None, None]
    assert group.upserts["v"].to_pylist() == [1, 2]


def work(partition: int, records: int, topic: Topic = Topic.DATA) -> PartitionWork:
    produced = Produced(topic, partition, 0, 0, 1, records, 0)
    return PartitionWork(topic, partition, [NamedRange("n", 0, produced)])


@pytest.mark.parametrize("seed", range(20))
def test_work_is_spread_whole_and_evenly(seed: int) -> None:
    dice = random.Random(seed)
    given = [work(number, dice.randint(0, 1_000)) for number in range(dice.randint(0, 20))]
    shares_max = dice.randint(1, 8)
    shares = spread(given, shares_max)
    assert len(shares) == min(shares_max, len(given))
    assert all(shares), "no task without work"
    assert sorted(w.partition for share in shares for w in share) == [w.partition for w in given]
    loads = [sum(w.records for w in share) for share in shares]
    if loads:
        largest = max(w.records for w in given)
        assert max(loads) - min(loads) <= largest + len(given)


def test_a_topic_partition_is_never_split() -> None:
    assert spread([work(0, 10_000)], 4) == [[work(0, 10_000)]]


def test_a_small_epoch_starts_one_task_a_slot() -> None:
    assert task_count([work(n, 5_000) for n in range(8)], slots=2) == 2
    assert task_count([work(n, 5_001) for n in range(8)], slots=2) == 4
