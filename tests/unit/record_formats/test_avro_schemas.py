"""Writers' schemas and where they come from: which no record is read by, a registry that is slow or gone,
keys with schemas of their own.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.index_assigner.avro_world import TABLE, ZOO, Reads, decode, framed, messages, record_schema
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.record_formats import schema_cache
from tidemark.record_formats.avro_memory import MEMORY_PER_BYTE_MAX, memory_per_byte
from tidemark.record_formats.avro_rows import column_defaults
from tidemark.record_formats.avro_schema import AvroSchemaError, read_avro_schema
from tidemark.record_formats.errors import InputWaitsError
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.record_formats.schema_cache import FAILS_ALONE_AFTER_S, SCHEMAS_MAX, UNKNOWN_AFTER_S


def nested_schema(levels: int) -> Any:
    inner: Any = "int"
    for level in range(levels):
        inner = record_schema(f"r{level}", {"x": inner})
    return inner


def wide_schema() -> Any:
    fields: dict[str, Any] = {}
    last: Any = "int"
    for level in range(16):
        last = record_schema(f"w{level}", {"a": last, "b": f"w{level - 1}" if level else "int"})
        fields = {"top": last}
    return record_schema("wide", fields)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (record_schema("node", {"next": ["null", "node"]}), "contains itself"),
        (record_schema("w", {"x": {"type": "array", "items": "null"}}), "no bytes"),
        (
            record_schema("w", {"x": {"type": "array", "items": record_schema("e", {"n": "null"})}}),
            "no bytes",
        ),
        (
            record_schema("w", {"x": {"type": "array", "items": {"type": "fixed", "name": "z", "size": 0}}}),
            "no bytes",
        ),
        (nested_schema(60), "levels deep"),
        (wide_schema(), "parts"),
        (record_schema("w", {"x": "nobody"}), "nobody"),
        (record_schema("w", {"x": []}), "empty union"),
        ({"type": "record", "fields": []}, "without a name"),
        ({"type": "fixed", "name": "f"}, "size"),
        (5, "no Avro type"),
    ],
)
def test_a_schema_that_could_exhaust_its_reader_is_never_read_by(schema, says):
    with pytest.raises(AvroSchemaError, match=says):
        read_avro_schema(json.dumps(schema))


names = st.sampled_from(["a", "b", "a.b", "", "id", "rec"])
schemas = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "double", "bytes", "string", "a", "b", "x"])
    | st.none()
    | st.integers()
    | st.just({"type": "bytes", "logicalType": "decimal", "scale": float("inf")})
    | st.fixed_dictionaries({"type": st.just("fixed"), "name": names, "size": st.integers(-1, 2**40)})
    | st.fixed_dictionaries({"type": st.just("enum"), "name": names, "symbols": st.lists(names) | st.none()}),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries(
            {"type": st.sampled_from(["array", "map"])}, optional={"items": inner, "values": inner}
        )
        | st.fixed_dictionaries(
            {"type": st.just("record")},
            optional={
                "name": names,
                "namespace": names,
                "fields": st.lists(
                    st.fixed_dictionaries({}, optional={"name": names, "type": inner}), max_size=3
                ),
            },
        )
        | st.fixed_dictionaries({"type": inner})
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(schemas)
def test_any_schema_is_usable_or_refused_with_a_reason(schema: Any):
    reads = Reads()
    reads.registry.register(1, schema)
    decode(reads.decoder, b"\x00\x00\x00\x00\x01", b"\x00\x00\x00\x00\x01\x02\x02\x02")
    reads.decoder.record_keys([b"\x00\x00\x00\x00\x01\x02\x02"])


def test_a_registry_that_is_down_makes_the_batch_wait_and_loses_nothing():
    reads = Reads()
    schema = record_schema("w", {"id": "string"})
    reads.registry.register(1, schema)
    reads.registry.down = True
    value = framed(1, schema, {"id": "a"})
    for says in ("connection refused", *[r"did not answer for schema 1; .* again in \d\.\d s"] * 2):
        with pytest.raises(InputWaitsError, match=says):
            decode(reads.decoder, value)
    assert len(reads.registry.asked) == 2, "the id and another one, and not again at once"
    reads.clock.advance(6.0)
    with pytest.raises(InputWaitsError, match="connection refused"):
        decode(reads.decoder, value)
    reads.registry.down = False
    reads.clock.advance(6.0)
    assert decode(reads.decoder, value).rows.num_rows == 1
    reads.registry.down = True
    assert decode(reads.decoder, value).rows.num_rows == 1


def test_an_unknown_schema_is_asked_for_again_before_its_records_are_refused():
    reads = Reads()
    schema = record_schema("w", {"id": "string"})
    reads.registry.register(1, schema)
    values = [framed(1, schema, {"id": "a"}), framed(9, schema, {"id": "b"})]
    with pytest.raises(InputWaitsError, match="no schema 9 yet"):
        decode(reads.decoder, *values)
    reads.clock.advance(UNKNOWN_AFTER_S)
    decoded = decode(reads.decoder, *values)
    assert [(each.position, each.reason) for each in decoded.refused] == [
        (1, DeadLetterReason.UNKNOWN_SCHEMA)
    ]
    asked = len(reads.registry.asked)
    decode(reads.decoder, *values)
    assert len(reads.registry.asked) == asked
    reads.registry.register(9, schema)
    reads.clock.advance(61.0)
    assert decode(reads.decoder, *values).rows.num_rows == 2


def test_a_batch_that_names_more_schemas_than_are_kept_comes_through():
    reads = Reads()
    schema = record_schema("w", {"id": "string"})
    count = 2 * SCHEMAS_MAX + 10
    for number in range(0, count, 2):
        reads.registry.register(number, schema)
    values = [framed(number, schema, {"id": str(number)}) for number in range(count)]
    with pytest.raises(InputWaitsError):
        decode(reads.decoder, *values)
    reads.clock.advance(UNKNOWN_AFTER_S)
    decoded = decode(reads.decoder, *values)
    assert (decoded.rows.num_rows, len(decoded.refused)) == (count // 2, count // 2)
    assert len(reads.registry.asked) == count + 10, "the first few unknown ones twice, all others once"


def test_an_id_that_no_registry_can_have_is_refused_without_asking():
    reads = Reads()
    schema = record_schema("w", {"id": "string"})
    values = [framed(number, schema, {"id": "a"}) for number in (2**31, 2**32 - 1)]
    decoded = decode(reads.decoder, *values)
    assert [each.reason for each in decoded.refused] == [DeadLetterReason.UNKNOWN_SCHEMA] * 2
    assert not reads.registry.asked


def refused_at_last(reads: Reads, values: list[bytes]) -> tuple[list[int], float]:
    """The positions that are refused once the batch waits no more, and how many seconds it waited."""
    waited_s = 0.0
    while True:
        try:
            decoded = decode(reads.decoder, *values)
        except InputWaitsError:
            reads.clock.advance(0.5)
            waited_s += 0.5
            assert waited_s < 60.0, "the input waits for ever"
        else:
            return sorted(each.position for each in decoded.refused), waited_s


def test_a_schema_at_which_the_registry_fails_alone_stops_no_input():
    """As one that is longer than any answer may be, or that the registry is too slow or broken to tell."""
    reads = Reads()
    schema = record_schema("w", {"id": "string"})
    for number in (1, 2):
        reads.registry.register(number, schema)
    reads.registry.failing = {7: "the answer is longer than 8388608 bytes", 2**31 - 1: "HTTP 500", 8: "slow"}
    values = [framed(number, schema, {"id": str(number)}) for number in (1, 7, 2, 2**31 - 1, 8)]
    refused, waited_s = refused_at_last(reads, values)
    assert (refused, waited_s >= FAILS_ALONE_AFTER_S) == ([1, 3, 4], True)
    assert waited_s < 2 * FAILS_ALONE_AFTER_S, "all of them wait at a time"
    decoded = decode(reads.decoder, *values)
    assert {each.reason for each in decoded.refused} == {DeadLetterReason.UNKNOWN_SCHEMA}
    assert "schema 7: the answer is longer than" in decoded.refused[0].detail
    asked = len(reads.registry.asked)
    reads.clock.advance(120.0)
    assert refused_at_last(reads, values)[1] == 0.0
    assert len(reads.registry.asked) == asked, "nor does it wait again each minute"
    reads.registry.failing = {}
    for number in (7, 8, 2**31 - 1):
        reads.registry.register(number, schema)
    reads.clock.advance(600.0)
    assert decode(reads.decoder, *values).rows.num_rows == 5


def test_a_registry_that_is_down_for_long_refuses_nothing():
    reads = Reads()
    schema = record_schema("w", {"id": "string"})
    for number in (1, 2):
        reads.registry.register(number, schema)
    values = [framed(number, schema, {"id": str(number)}) for number in (1, 2)]
    decode(reads.decoder, values[0])
    reads.registry.down = True
    for _ in range(100):
        with pytest.raises(InputWaitsError):
            decode(reads.decoder, *values)
        reads.clock.advance(6.0)
    reads.registry.down = False
    assert decode(reads.decoder, *values).rows.num_rows == 2


def test_the_schemas_of_one_batch_have_a_limit_as_have_all_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(schema_cache, "PARTS_MAX", 100)
    reads = Reads()
    schema = record_schema("w", {"id": "string", **{f"n{number}": "int" for number in range(38)}})
    for number in range(1, 8):
        reads.registry.register(number, schema)
    row = {"id": "a", **{f"n{number}": 1 for number in range(38)}}
    values = [framed(number, schema, row) for number in range(1, 8)]
    with pytest.raises(InputWaitsError, match="more than 100 parts") as waits:
        decode(reads.decoder, *values)
    assert waits.value.before == 2
    for value in values:
        assert decode(reads.decoder, value).rows.num_rows == 1
    assert decode(reads.decoder, *values[:2]).rows.num_rows == 2
    cache = reads.decoder._framed._schemas
    assert (len(cache._known), cache._parts) == (2, 80)
    rules = RecordRules(ZOO, reads.generator, None, 1, 1, 1 << 20)
    keyed = RecordKeyer(rules, reads.decoder).key_records(messages(values))
    assert (keyed.records, keyed.rows.num_rows) == (2, 2)


@pytest.mark.parametrize(
    ("column", "served"),
    [
        ({"type": "array", "items": record_schema("i", {"flag": "boolean"})}, True),
        ({"type": "array", "items": {"type": "map", "values": ["null", "long"]}}, True),
        (record_schema("a", {"b": record_schema("c", {"d": record_schema("e", {"n": "null"})})}), True),
        ({"type": "array", "items": nested_schema(3)}, True),
        ({"type": "array", "items": nested_schema(5)}, False),
        ({"type": "map", "values": nested_schema(9)}, False),
        (
            {
                "type": "array",
                "items": record_schema("i", {"flag": "boolean", **{f"n{i}": "null" for i in range(9)}}),
            },
            False,
        ),
        (
            {"type": "array", "items": ["null", record_schema("n", {f"n{i}": "null" for i in range(9)})]},
            False,
        ),
        (record_schema("n", {f"n{i}": "null" for i in range(900)}), False),
    ],
)
def test_few_bytes_never_become_much_memory(column: Any, served: bool):
    schema = record_schema("w", {"id": "string", "x": column})
    reads = Reads()
    reads.registry.register(1, schema)
    if served:
        assert memory_per_byte(read_avro_schema(json.dumps(schema))) <= MEMORY_PER_BYTE_MAX
        return
    refused = decode(reads.decoder, b"\x00\x00\x00\x00\x01\x02a\x00").refused
    assert [each.reason for each in refused] == [DeadLetterReason.INCOMPATIBLE_SCHEMA]
    assert "bytes of memory" in refused[0].detail


def test_records_of_a_hungry_type_may_hold_fewer_values():
    schema = record_schema("w", {"id": "string", "x": {"type": "array", "items": nested_schema(3)}})
    reads = Reads()
    reads.registry.register(1, schema)

    def value(count: int) -> bytes:
        head = b"\x00\x00\x00\x00\x01\x02a"
        return head + framed(1, "long", count)[5:] + b"\x02" * count + b"\x00"

    decoded = decode(reads.decoder, value(600_000), value(100_000))
    assert decoded.rows.num_rows == 1
    assert [(each.position, each.reason) for each in decoded.refused] == [
        (0, DeadLetterReason.RECORD_TOO_LARGE)
    ]
    assert "more than 262144 values" in decoded.refused[0].detail


def test_a_registry_that_is_slow_does_not_hold_the_caller_for_long():
    reads = Reads()
    schema = record_schema("w", {"id": "string"})
    for number in range(10):
        reads.registry.register(number, schema)
    reads.registry.takes_s, reads.registry.clock = 0.5, reads.clock
    values = [framed(number, schema, {"id": str(number)}) for number in range(10)]
    with pytest.raises(InputWaitsError, match="more schemas"):
        decode(reads.decoder, *values)
    assert len(reads.registry.asked) < 10
    assert decode(reads.decoder, *values).rows.num_rows == 10
    assert len(reads.registry.asked) == 10


def test_kafka_keys_are_framed_records_or_text():
    reads = Reads()
    struct = record_schema("Key", {"id": "string"})
    reads.registry.register(4, struct)
    reads.registry.register(5, "string")
    reads.registry.register(6, record_schema("Key", {"other": "string"}))
    reads.registry.register(8, "boolean")
    keys = [
        framed(4, struct, {"id": "a"}),
        framed(5, "string", "b"),
        b"c",
        b'{"id":"d"}',
        framed(4, struct, {"id": "e"})[:-1],
        framed(6, record_schema("Key", {"other": "string"}), {"other": "x"}),
        framed(8, "boolean", True),
        None,
    ]
    made = reads.decoder.record_keys(keys)
    assert made.keys.to_pylist()[:4] == ["a", "b", "c", "d"]
    errors = made.error.to_pylist()
    assert errors[:4] == [None] * 4
    assert all(errors[4:])
    assert "schema 4" in errors[4]
    reads.registry.down = True
    with pytest.raises(InputWaitsError):
        reads.decoder.record_keys([b"\x00\x00\x00\x00\x63x"])


def test_a_default_that_does_not_fit_its_column_is_named():
    bad = {**TABLE, "fields": [{"name": "i", "type": "int", "default": "x"}]}
    with pytest.raises(Exception, match="field i: its default 'x'"):
        column_defaults(json.dumps(bad), pa.schema([pa.field("i", pa.int32())]))
