"""Records to keyed rows and to messages: keys, lanes, ordering, deletes, and every reason to refuse."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.index_assigner.shuffle_world import LANES, RECORD_BYTES_MAX, SHARDS, order, rules
from tidemark.epoch_protocol.batches import BatchHeader, KeyedOp, decode_batch
from tidemark.epoch_protocol.messages import produced_ranges
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.index_assigner.shuffle.dead_letters import dead_letters
from tidemark.index_assigner.shuffle.keyed_parts import KeyedRows
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.index_assigner.shuffle.shuffle_batch import encode_lanes, keyed_messages
from tidemark.record_formats.errors import InputWaitsError
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.stream_runtime.kafka.ports import Message

KEYER = RecordKeyer(rules())


def messages(*values: bytes | None, key: bytes | None = None) -> list[Message]:
    return [Message("in", 3, 100 + i, key, value, (), 1_000 + i) for i, value in enumerate(values)]


def key_values(*values: bytes | None, key: bytes | None = None) -> KeyedRows:
    return KEYER.key_records(messages(*values, key=key))


def without(record: bytes, *names: str) -> bytes:
    return json.dumps({k: v for k, v in json.loads(record).items() if k not in names}).encode()


def test_an_upsert_row():
    (row,) = key_values(order("a", 7, note="x")).rows.to_pylist()
    shard = int(record_index_shard(["a"], SHARDS)[0])
    assert row == {
        "_tm_key": "a",
        "_tm_shard": shard,
        "_tm_partition": "2024-01-01",
        "_tm_ordering": 7,
        "_tm_op": KeyedOp.UPSERT,
        "id": "a",
        "day": "2024-01-01",
        "at": 7,
        "note": "x",
    }


def test_a_typed_delete_needs_its_key_and_ordering_alone():
    keyed = key_values(
        order("a", 7, _deleted=True),
        without(order("b", 8, _deleted=True), "day"),
        without(order("c", 9, _deleted=True), "at"),
    )
    rows = keyed.rows.to_pylist()
    found = [(r["_tm_key"], r["_tm_partition"], r["_tm_ordering"], r["_tm_op"]) for r in rows]
    assert found == [("a", "2024-01-01", 7, KeyedOp.DELETE), ("b", None, 8, KeyedOp.DELETE)]
    assert [(r.position, r.reason) for r in keyed.refused] == [(2, DeadLetterReason.NULL_ORDERING)]


def test_null_values_delete_by_kafka_key_between_other_records_in_order():
    batch = [
        Message("in", 0, 0, None, order("a")),
        Message("in", 0, 1, b"a", None),
        Message("in", 0, 2, b'{"id":"b"}', None),
        Message("in", 0, 3, None, order("a", 2)),
    ]
    keyed = KEYER.key_records(batch)
    rows = [(r["_tm_key"], r["_tm_op"], r["_tm_ordering"]) for r in keyed.rows.to_pylist()]
    assert rows == [("a", 0, 1), ("a", 1, None), ("b", 1, None), ("a", 0, 2)]
    assert keyed.positions.tolist() == [0, 1, 2, 3]


def test_a_table_without_partitions_knows_the_partition_of_a_null_value():
    schema = TableSchema.from_arrow("t", pa.schema([pa.field("id", pa.string(), nullable=False)]))
    keyer = RecordKeyer(
        RecordRules(schema, KeyGenerator.for_table(schema, ["id"]), None, SHARDS, LANES, 1_000)
    )
    keyed = keyer.key_records(messages(None, b'{"id":"a"}', key=b"a"))
    assert keyed.rows.column("_tm_partition").to_pylist() == ["", ""]
    assert keyed.rows.column("_tm_ordering").null_count == 2


@pytest.mark.parametrize(
    ("value", "reason", "named"),
    [
        (without(order("a"), "id"), DeadLetterReason.MISSING_KEY, "id"),
        (order("a", id=None), DeadLetterReason.NULL_KEY, "id"),
        (order(""), DeadLetterReason.NULL_KEY, "id"),
        (without(order("a"), "id")[:-1] + b', "zz":"\xff"}', DeadLetterReason.MISSING_KEY, "id"),
        (order("k" * 9_000), DeadLetterReason.KEY_TOO_LONG, "8192"),
        (order("a", at=None), DeadLetterReason.NULL_ORDERING, "at"),
        (without(order("a"), "at"), DeadLetterReason.NULL_ORDERING, "at"),
        (order("a", at="soon"), DeadLetterReason.MISTYPED_FIELD, "at"),
        (order("a", day="../x"), DeadLetterReason.BAD_PARTITION, ".."),
        (order("a", day="/x"), DeadLetterReason.BAD_PARTITION, "absolute"),
        (order("a", day="a\0b"), DeadLetterReason.BAD_PARTITION, "control"),
        (order("a", day=None), DeadLetterReason.BAD_PARTITION, "day"),
        (without(order("a"), "day"), DeadLetterReason.BAD_PARTITION, "day"),
        (order("a", day=5), DeadLetterReason.MISTYPED_FIELD, "day"),
        (
            order("a", note="x" * (RECORD_BYTES_MAX + 1)),
            DeadLetterReason.RECORD_TOO_LARGE,
            "limits.record_bytes",
        ),
        (None, DeadLetterReason.NULL_VALUE_WITHOUT_KEY, "Kafka key"),
    ],
)
def test_every_reason_leaves_the_other_records_alone(value, reason, named):
    keyed = key_values(order("before"), value, order("after"))
    assert [(r.position, r.reason) for r in keyed.refused] == [(1, reason)]
    assert named in keyed.refused[0].detail
    assert keyed.rows.column("_tm_key").to_pylist() == ["before", "after"]
    assert keyed.positions.tolist() == [0, 2]


def test_a_kafka_key_that_is_no_record_key():
    keyed = key_values(None, key=b"\xff")
    assert [r.reason for r in keyed.refused] == [DeadLetterReason.BAD_KEY]


def test_a_required_column_must_be_there_in_an_upsert_only():
    schema = TableSchema.from_arrow(
        "t",
        pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("v", pa.int32(), nullable=False)]),
    )
    generator = KeyGenerator.for_table(schema, ["id"])
    keyer = RecordKeyer(RecordRules(schema, generator, None, SHARDS, LANES, 1_000, "gone"))
    keyed = keyer.key_records(messages(b'{"id":"a"}', b'{"id":"b","gone":true}'))
    assert [(r.position, r.reason) for r in keyed.refused] == [(0, DeadLetterReason.MISTYPED_FIELD)]
    assert keyed.rows.column("_tm_key").to_pylist() == ["b"]


def test_lanes_keep_the_order_of_arrival_and_split_under_the_limits():
    keys = [f"k{i % 50}" for i in range(1_000)]
    keyed = KEYER.key_records(messages(*(order(key, at) for at, key in enumerate(keys))))
    encoded = encode_lanes(keyed, batch_bytes=8_000, message_bytes=20_000)
    assert encoded.refused == []
    assert max(len(b.value) for b in encoded.batches) <= 20_000
    assert len(encoded.batches) > 2 * LANES
    seen: dict[int, list[int]] = {lane: [] for lane in range(LANES)}
    for batch in encoded.batches:
        rows = decode_batch(batch.value)
        assert rows.num_rows == batch.rows
        assert set(np.asarray(rows.column("_tm_shard")) % LANES) == {batch.partition}
        seen[batch.partition] += rows.column("_tm_ordering").to_pylist()
    assert all(lane == sorted(lane) for lane in seen.values())
    assert sorted(seen[0] + seen[1]) == list(range(1_000))


def test_rows_that_need_halving_fit_and_one_that_never_fits_is_refused():
    values = [order(f"k{i}", note="x" * (10 if i % 10 else 30_000)) for i in range(40)]
    values[7] = order("huge", note="y" * 200_000)
    keyed = KEYER.key_records(messages(*values))
    encoded = encode_lanes(keyed, batch_bytes=1_000_000, message_bytes=70_000)
    assert [(r.position, r.reason) for r in encoded.refused] == [(7, DeadLetterReason.RECORD_TOO_LARGE)]
    assert max(len(b.value) for b in encoded.batches) <= 70_000
    assert sum(b.rows for b in encoded.batches) == 39


def test_messages_are_numbered_per_lane_and_the_entry_says_what_is_in_them():
    keyed = KEYER.key_records(messages(*(order(f"k{i}") for i in range(500))))
    batches = encode_lanes(keyed, 6_000, 20_000).batches
    sent = keyed_messages(batches, "t.keyed", "nonce", "schema")
    for lane in range(LANES):
        headers = [BatchHeader.decode(m.headers) for m in sent if m.topic_partition.partition == lane]
        assert [h.sequence for h in headers] == list(range(len(headers)))
        assert {(h.nonce, h.schema_id) for h in headers} == {("nonce", "schema")}
    produced = produced_ranges(batches, range(10, 10 + len(batches)))
    assert sum(p.records for p in produced) == 500
    assert {p.partition: p.batches for p in produced} == dict(Counter(b.partition for b in batches))


def test_a_dead_letter_says_why_and_where_and_carries_the_record():
    batch = [Message("in", 3, 17, b"k", b"{" + b"x" * 50, (), 1_234), Message("in", 3, 18, None, None)]
    keyed = KEYER.key_records(batch)
    cut, null = dead_letters(batch, keyed.refused, "t.dead-letter", value_bytes_max=10)
    headers = dict(cut.headers)
    assert (cut.key, cut.value) == (b"k", b"{" + b"x" * 8)
    assert (headers["tm-reason"], headers["tm-cut-value"]) == (b"not-json", b"51")
    assert [headers[f"tm-{n}"] for n in ("topic", "partition", "offset", "timestamp-ms")] == [
        b"in",
        b"3",
        b"17",
        b"1234",
    ]
    assert (null.key, null.value) == (None, None)
    assert "tm-cut-value" not in dict(null.headers)


@pytest.mark.parametrize(("key", "value"), [(5, 5), (6, 40), (40, 6), (40, 40), (0, 40), (10, 0)])
def test_key_and_value_of_a_dead_letter_fit_together(key: int, value: int):
    record = Message("in", 0, 1, b"k" * key, b"v" * value)
    (letter,) = dead_letters(
        [record], [Refusal(0, DeadLetterReason.NOT_JSON, "")], "t.dead-letter", value_bytes_max=10
    )
    assert letter.key is not None
    assert letter.value is not None
    assert len(letter.key) + len(letter.value) == min(key + value, 10)
    headers = dict(letter.headers)
    assert headers.get("tm-cut-key") == (None if len(letter.key) == key else str(key).encode())
    assert headers.get("tm-cut-value") == (None if len(letter.value) == value else str(value).encode())


def test_headers_that_the_client_cannot_read_make_a_letter_that_is_not_whole():
    record = Message("in", 0, 1, b"k", b"{", (), 5, headers_unreadable=True)
    (letter,) = dead_letters([record], KEYER.key_records([record]).refused, "t.dead-letter", 100)
    assert dict(letter.headers)["tm-cut-headers"] == b"-1"


class Allergic:
    """A decoder with a defect that some records meet; `calls` counts."""

    tombstones_follow_deletes = False

    def __init__(self, error: type[BaseException]) -> None:
        self.error, self.calls = error, 0
        self._sound = KEYER._decoder

    def decode(self, messages, positions):
        self.calls += 1
        if any(b"peanut" in (message.value or b"") for message in messages):
            raise self.error("peanut")
        return self._sound.decode(messages, positions)

    def memory(self, values, most):
        return self._sound.memory(values, most)

    def record_keys(self, keys):
        return self._sound.record_keys(keys)

    def without_key(self, value, name):
        return self._sound.without_key(value, name)


@pytest.mark.parametrize("error", [SystemError, MemoryError, RecursionError, KeyError, pa.ArrowInvalid])
def test_what_decoding_raises_costs_the_record_that_raises_it_alone(error: type[Exception]):
    decoder = Allergic(error)
    bad = {7, 8, 500, 999}
    values = [order("peanut" if i in bad else f"k{i}") for i in range(1_000)]
    keyed = RecordKeyer(rules(), decoder).key_records(messages(*values))
    assert [(each.position, each.reason) for each in keyed.refused] == [
        (i, DeadLetterReason.UNDECODABLE) for i in sorted(bad)
    ]
    assert all(f"{error.__name__}: " in each.detail for each in keyed.refused)
    assert keyed.positions.tolist() == [i for i in range(1_000) if i not in bad]
    assert keyed.rows.column("_tm_key").to_pylist() == [f"k{i}" for i in range(1_000) if i not in bad]
    assert decoder.calls < 100


class Careless(Allergic):
    """Makes columns of some records that are none: text that is not UTF-8."""

    def decode(self, messages, positions):
        decoded = self._sound.decode(messages, positions)
        keys = decoded.rows.column("id").to_pylist()
        notes = pa.array([b"\xff" if "peanut" in key else b"x" for key in keys], pa.binary())
        at = decoded.rows.schema.get_field_index("note")
        return replace(decoded, rows=decoded.rows.set_column(at, "note", notes.view(pa.string())))


def test_a_row_that_no_reader_of_a_batch_would_take_costs_its_record_alone():
    bad = {7, 8, 99}
    values = [order("peanut" if i in bad else f"k{i}") for i in range(100)]
    keyed = RecordKeyer(rules(), Careless(ValueError)).key_records(messages(*values))
    assert [(each.position, each.reason) for each in keyed.refused] == [
        (i, DeadLetterReason.UNDECODABLE) for i in sorted(bad)
    ]
    assert "ArrowInvalid: " in keyed.refused[0].detail
    batches = [decode_batch(each.value) for each in encode_lanes(keyed, 1 << 20, 1 << 20).batches]
    decoded = [key for batch in batches for key in batch.column("_tm_key").to_pylist()]
    assert sorted(decoded) == sorted(f"k{i}" for i in range(100) if i not in bad)


def test_input_that_waits_is_not_halved():
    decoder = Allergic(InputWaitsError)
    with pytest.raises(InputWaitsError):
        RecordKeyer(rules(), decoder).key_records(messages(order("a"), order("peanut")))
    assert decoder.calls == 1


def test_a_batch_of_many_bytes_is_decoded_in_parts_and_comes_out_in_order():
    decoder = Allergic(ValueError)
    filler = "x" * 300_000
    values = [order(f"k{i}", text=filler) for i in range(40)]
    values[33] = b"{broken"
    keyed = RecordKeyer(rules(), decoder).key_records(messages(*values))
    assert decoder.calls >= 3
    assert [each.position for each in keyed.refused] == [33]
    assert keyed.positions.tolist() == [i for i in range(40) if i != 33]
    assert keyed.rows.column("_tm_key").to_pylist() == [f"k{i}" for i in range(40) if i != 33]
    assert len(keyed.lanes) == 39


@pytest.mark.parametrize(
    "key",
    [
        b'{"x":1e99999999999999999999}',
        b'{"id":1e99999999999999999999}',
        b'{"id":"a","x":-1e-99999999999999999999}',
        b'{"id":' + b"9" * 5_000 + b"}",
        b'{"id":{"a":[' + b"[" * 5_000 + b"}",
    ],
)
def test_a_monstrous_number_in_the_key_of_a_delete_is_no_defect(key: bytes):
    keyed = KEYER.key_records([Message("in", 0, 1, key, None), Message("in", 0, 2, b"a", None)])
    assert not [each for each in keyed.refused if each.reason is DeadLetterReason.UNDECODABLE]
    assert 1 in keyed.positions.tolist()


def test_a_partition_value_that_cannot_be_a_folder_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    keyer = RecordKeyer(replace(rules(), folder_problem=LocalStorage(tmp_path).folder_problem))
    days = ["folder", "new", "file", "file/below", "link", "link/below", "folder/new"]
    data_files = ["p/1f-0_1-0-1_20240101000000000.parquet", "p/.1f-0_20240101000000000.log.1_0-1-1", "x.ORC"]
    values = [json.dumps({"id": f"k{i}", "day": day, "at": 1}) for i, day in enumerate([*days, *data_files])]
    keyed = keyer.key_records(messages(*(value.encode() for value in values)))
    assert keyed.positions.tolist() == [0, 1, 6]
    assert {each.reason for each in keyed.refused} == {DeadLetterReason.BAD_PARTITION}
    said = {each.position: each.detail for each in keyed.refused}
    assert "'file' is a file" in said[3]
    assert "'link' is a symbolic link" in said[5]
    assert all("name of a data file" in said[i] for i in (7, 8, 9))


values = (
    st.none()
    | st.binary(max_size=12)
    | st.fixed_dictionaries(
        {},
        optional={
            "id": st.sampled_from(["a", "b", "", "é😀", None, 5]),
            "day": st.sampled_from(["d1", "d2", "../x", "", None]),
            "at": st.integers(-5, 5) | st.none() | st.text(max_size=2),
            "_deleted": st.booleans() | st.none(),
            "zz": st.integers(),
        },
    ).map(lambda record: json.dumps(record).encode())
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.none() | st.binary(max_size=6) | st.just(b'{"id":"q"}'), values), max_size=15))
def test_every_record_is_a_row_or_a_refusal(batch):
    records = [Message("in", 0, i, key, value) for i, (key, value) in enumerate(batch)]
    keyed = KEYER.key_records(records)
    keyed.rows.validate(full=True)
    positions = keyed.positions.tolist() + [r.position for r in keyed.refused]
    assert sorted(positions) == list(range(len(records)))
    assert keyed.positions.tolist() == sorted(keyed.positions.tolist())
    encoded = encode_lanes(keyed, 1_000, 10_000)
    assert sum(b.rows for b in encoded.batches) == keyed.rows.num_rows
