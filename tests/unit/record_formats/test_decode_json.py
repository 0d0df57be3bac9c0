"""Every JSON record becomes one row of exact types or one refusal with its reason; none disturbs another."""

from __future__ import annotations

import base64
import gc
import json
import weakref
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.config.model import UnknownFields
from tidemark.hudi_format.schema import SchemaError, TableSchema
from tidemark.record_formats.decode_json import JsonDecoder
from tidemark.record_formats.decoder import DecodedRecords
from tidemark.record_formats.refusals import DeadLetterReason

NESTED = pa.struct(
    [
        pa.field("n", pa.int32(), nullable=False),
        pa.field("when", pa.timestamp("us", "UTC")),
        pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
    ]
)
ZOO = TableSchema.from_arrow(
    "zoo",
    pa.schema(
        [
            pa.field("s", pa.string(), nullable=False),
            pa.field("i", pa.int32()),
            pa.field("l", pa.int64()),
            pa.field("f", pa.float32()),
            pa.field("d", pa.float64()),
            pa.field("b", pa.bool_()),
            pa.field("raw", pa.binary()),
            pa.field("day", pa.date32()),
            pa.field("micros", pa.timestamp("us", "UTC")),
            pa.field("millis", pa.timestamp("ms", "UTC")),
            pa.field("local", pa.timestamp("us")),
            pa.field("dec", pa.decimal128(10, 2)),
            pa.field("list", pa.list_(pa.field("element", pa.decimal128(5, 1)))),
            pa.field("map", pa.map_(pa.string(), pa.field("value", pa.int64()))),
            pa.field("rec", NESTED),
            pa.field("class", pa.string()),
        ]
    ),
)
UTC_NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)


def decode(*values: bytes, forbid: bool = False, delete_field: str | None = None) -> DecodedRecords:
    decoder = JsonDecoder(ZOO, delete_field, UnknownFields.ERROR if forbid else UnknownFields.DROP)
    return decoder.decode(list(values), np.arange(len(values)))


def one(field: str, token: str) -> Any:
    """The value that a JSON token becomes in a column, or the refusal."""
    decoded = decode(f'{{"{field}":{token}}}'.encode())
    if decoded.refused:
        assert decoded.rows.num_rows == 0
        return decoded.refused[0].reason
    decoded.rows.validate(full=True)
    return decoded.rows.column(field)[0].as_py()


ACCEPTED = [
    ("s", '"\\ud83d\\ude00 \\u0000"', "😀 \0"),
    ("s", '""', ""),
    ("i", "-2147483648", -(2**31)),
    ("l", "9223372036854775807", 2**63 - 1),
    ("f", "0.1", float(np.float32(0.1))),
    ("d", "5", 5.0),
    ("d", "-1e-300", -1e-300),
    ("b", "true", True),
    ("raw", '"AP8="', b"\x00\xff"),
    ("day", '"2024-02-29"', date(2024, 2, 29)),
    ("day", "-1", date(1969, 12, 31)),
    ("micros", '"2024-02-29T12:00:00.123456Z"', UTC_NOON),
    ("micros", '"2024-02-29T14:00:00.123456+02:00"', UTC_NOON),
    ("micros", '"2024-02-29T12:00:00.123456"', UTC_NOON),
    ("micros", '"2024-02-29 12:00:00.123456999"', UTC_NOON),
    ("micros", '"2024-02-29"', datetime(2024, 2, 29, tzinfo=UTC)),
    ("micros", "1709208000123456", UTC_NOON),
    ("millis", "1709208000123", UTC_NOON.replace(microsecond=123000)),
    ("millis", '"2024-02-29T12:00:00.123456Z"', UTC_NOON.replace(microsecond=123000)),
    ("local", '"2024-02-29T12:00:00.123456"', UTC_NOON.replace(tzinfo=None)),
    ("local", "1709208000123456", UTC_NOON.replace(tzinfo=None)),
    ("dec", "12345678.9", Decimal("12345678.90")),
    ("dec", '"-0.01"', Decimal("-0.01")),
    ("dec", "1E2", Decimal("100.00")),
    ("list", '[1.5,null,"2"]', [Decimal("1.5"), None, Decimal("2.0")]),
    ("list", "[]", []),
    ("map", '{"a":1,"":null}', [("a", 1), ("", None)]),
    ("rec", '{"n":1}', {"n": 1, "when": None, "tags": None}),
    ("rec", '{"n":1,"tags":["x"],"other":{}}', {"n": 1, "when": None, "tags": ["x"]}),
    ("class", '"keyword"', "keyword"),
    *[(name, "null", None) for name in ZOO.arrow.names],
]

REFUSED = [
    ("s", "1"),
    ("s", '"\\ud800"'),
    ("s", '"\\udc00x"'),
    ("i", "2147483648"),
    ("i", "1.0"),
    ("i", '"1"'),
    ("i", "true"),
    ("l", "9223372036854775808"),
    ("f", "1e39"),
    ("d", "1e999"),
    ("d", '"far"'),
    ("b", "1"),
    ("raw", '"?"'),
    ("day", '"2024-02-30"'),
    ("day", '"2024-02-29T00:00:00"'),
    ("micros", '"soon"'),
    ("micros", "true"),
    ("micros", "1.5"),
    ("local", '"2024-02-29T12:00:00Z"'),
    ("dec", "0.001"),
    ("dec", "123456789012"),
    ("dec", '"NaN"'),
    ("dec", "1e99999999"),
    ("dec", "1e-9999999"),
    ("dec", "5e-41"),
    ("dec", "5e-656"),
    ("dec", "123456789012345678901234567890e-414"),
    ("dec", '"-Infinity"'),
    ("dec", "1e-99999999999999999999"),
    ("i", "1e400000000"),
    ("f", "-1e400000000"),
    ("micros", "1e400000000"),
    ("day", "2147483648"),
    ("list", "[1,1e-9999999]"),
    ("list", "[1.55]"),
    ("list", '{"a":1}'),
    ("map", '[["a",1]]'),
    ("map", '{"a":"1"}'),
    ("rec", "{}"),
    ("rec", '{"n":1,"tags":[null]}'),
    ("rec", '{"n":1,"when":"x"}'),
]


@pytest.mark.parametrize(("field", "token", "expected"), ACCEPTED)
def test_values_of_every_type(field, token, expected):
    assert one(field, token) == expected


@pytest.mark.parametrize(("field", "token"), REFUSED)
def test_what_does_not_fit_is_refused(field, token):
    assert one(field, token) in (DeadLetterReason.MISTYPED_FIELD, DeadLetterReason.NOT_JSON)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", DeadLetterReason.NOT_JSON),
        (b" \n", DeadLetterReason.NOT_JSON),
        (b"{", DeadLetterReason.NOT_JSON),
        (b'{"s":"\xff"}', DeadLetterReason.NOT_JSON),
        (b"\xef\xbb\xbf{}", DeadLetterReason.NOT_JSON),
        (b"{}{}", DeadLetterReason.NOT_JSON),
        (b'{"s":"a"}\n{"s":"b"}', DeadLetterReason.NOT_JSON),
        (b'{"d":NaN}', DeadLetterReason.NOT_JSON),
        (b'{"x":' + b"[" * 100_000, DeadLetterReason.NOT_JSON),
        (b"null", DeadLetterReason.WRONG_SHAPE),
        (b"[{}]", DeadLetterReason.WRONG_SHAPE),
        (b'"{}"', DeadLetterReason.WRONG_SHAPE),
        (b'{"i":"x"}', DeadLetterReason.MISTYPED_FIELD),
    ],
)
def test_records_that_are_no_object_of_the_schema(value, reason):
    decoded = decode(b'{"s":"before"}', value, b'{"s":"after"}')
    assert [r.reason for r in decoded.refused] == [reason]
    assert decoded.refused[0].position == 1
    assert decoded.rows.column("s").to_pylist() == ["before", "after"]


def test_the_refusal_names_the_field_however_deep():
    decoded = decode(b'{"rec":{"n":1,"tags":["a",5]}}', b'{"micros":"soon"}')
    assert "rec.tags[1]" in decoded.refused[0].detail
    assert "micros" in decoded.refused[1].detail
    assert "'soon'" in decoded.refused[1].detail


def test_unknown_fields_are_dropped_or_refused():
    value = b'{"s":"a","zz":1}'
    assert decode(value).rows.num_rows == 1
    refused = decode(value, forbid=True).refused
    assert refused[0].reason is DeadLetterReason.UNKNOWN_FIELD
    assert "zz" in refused[0].detail
    nested = decode(b'{"rec":{"n":1,"zz":1}}', forbid=True).refused
    assert nested[0].reason is DeadLetterReason.UNKNOWN_FIELD


def test_the_last_of_two_equal_fields_holds():
    assert decode(b'{"s":"a","s":"b"}').rows.column("s").to_pylist() == ["b"]


def test_the_delete_field_is_a_flag_and_no_column():
    decoded = decode(
        b'{"s":"a","gone":true}',
        b'{"s":"b","gone":false}',
        b'{"s":"c","gone":null}',
        b'{"gone":1}',
        delete_field="gone",
        forbid=True,
    )
    assert decoded.deletes.tolist() == [True, False, False]
    assert "gone" not in decoded.rows.schema.names
    assert decoded.refused[0].reason is DeadLetterReason.MISTYPED_FIELD


def test_a_delete_field_that_is_a_column_stays_one_and_must_be_boolean():
    decoded = decode(b'{"b":true}', b'{"b":false}', delete_field="b")
    assert decoded.deletes.tolist() == [True, False]
    assert decoded.rows.column("b").to_pylist() == [True, False]
    with pytest.raises(SchemaError, match=r"delete_field s"):
        decode(delete_field="s")


def test_hudis_own_delete_column_counts_without_being_named():
    schema = TableSchema.from_arrow(
        "t", pa.schema([pa.field("id", pa.string()), pa.field("_hoodie_is_deleted", pa.bool_())])
    )
    decoder = JsonDecoder(schema, None, UnknownFields.DROP)
    decoded = decoder.decode([b'{"id":"a","_hoodie_is_deleted":true}', b'{"id":"b"}'], np.arange(2))
    assert decoded.deletes.tolist() == [True, False]


def test_many_bad_values_in_one_column_leave_the_good_ones():
    values = [
        b'{"s":"%d","dec":%s}' % (i, b'"x.001"' if i % 7 == 0 else b"0.001" if i % 5 == 0 else b"1")
        for i in range(300)
    ]
    decoded = decode(*values)
    good = [str(i) for i in range(300) if i % 7 and i % 5]
    assert decoded.rows.column("s").to_pylist() == good
    assert sorted([r.position for r in decoded.refused] + decoded.positions.tolist()) == list(range(300))


def test_an_empty_batch():
    assert decode().rows.num_rows == 0


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True)
    | st.text(max_size=8)
    | st.sampled_from(["2024-01-01", "2024-01-01T00:00:00Z", "1.5", "AAA="])
    | st.dates().map(str)
    | st.datetimes().map(lambda d: d.isoformat()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
records = st.dictionaries(st.sampled_from([*ZOO.arrow.names, "n", "zz"]), json_values, max_size=6)
raw_records = (
    st.binary(max_size=30)
    | json_values.map(lambda v: json.dumps(v).encode())
    | records.map(lambda v: json.dumps(v).encode())
    | records.map(lambda v: json.dumps(v)[:-2].encode())
)


@settings(max_examples=100, deadline=None)
@given(st.lists(raw_records, max_size=12), st.booleans())
def test_decoding_never_raises_and_every_record_is_a_row_or_a_refusal(values, forbid):
    decoded = decode(*values, forbid=forbid)
    decoded.rows.validate(full=True)
    refused = [r.position for r in decoded.refused]
    assert sorted(decoded.positions.tolist() + refused) == list(range(len(values)))
    assert decoded.positions.tolist() == sorted(decoded.positions.tolist())
    # A record comes out the same, whatever else is in its batch.
    for row, position in enumerate(decoded.positions.tolist()):
        alone = decode(values[position], forbid=forbid)
        assert alone.rows.slice(0, 1).equals(decoded.rows.slice(row, 1)) or "nan" in str(
            alone.rows.to_pylist()
        )


@given(st.binary(max_size=20))
def test_bytes_come_back_from_base64(content):
    assert one("raw", json.dumps(base64.b64encode(content).decode())) == content


@given(st.decimals(places=2, min_value=-(10**7), max_value=10**7))
def test_decimals_are_exact_as_text_and_as_number(value):
    assert one("dec", str(value)) == value
    assert one("dec", f'"{value}"') == value


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_instants_are_the_same_as_text_and_as_number(micros):
    text = pa.scalar(micros, pa.timestamp("us", "UTC")).cast(pa.timestamp("us")).cast(pa.string()).as_py()
    assert one("micros", f'"{text}Z"') == one("micros", str(micros))


class Value(bytearray):
    """As bytes; that it is gone can be seen."""


@pytest.mark.parametrize("unknown", list(UnknownFields))
def test_no_value_outlives_its_batch(unknown: UnknownFields) -> None:
    """Megabytes of refused records would stay until the garbage collector happens to come by."""
    bad = [
        b"\0",
        b"[1]",
        b'{"s": 1}',
        b'{"s": "a", "x": 1}',
        b'{"s": "a", "x": 1, "y": 2, "i": "no"}',
        b"\xff",
    ]
    decoder = JsonDecoder(ZOO, None, unknown)
    gc.collect()
    gc.disable()
    try:
        values = [Value(each) for each in [*bad, b'{"s": "a"}', *bad]]
        seen = [weakref.ref(each) for each in values]
        refused = decoder.decode(values, np.arange(len(values))).refused
        del values
        assert [ref() for ref in seen if ref() is not None] == []
    finally:
        gc.enable()
    assert len(refused) >= 8
