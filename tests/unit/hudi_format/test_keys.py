"""Record keys and partition paths. The expected texts are what Hudi 1.2.0 on Spark wrote for the same
values.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.key_text import keys_from_text
from tidemark.hudi_format.keys import KeyGenerator, KeyProblem
from tidemark.hudi_format.partition_paths import escape_partition_value
from tidemark.hudi_format.schema import SchemaError, TableSchema
from tidemark.hudi_format.table_config import (
    KeyGeneratorType,
    TableDefinition,
    TableType,
    new_table_properties,
    parse_table_config,
)

SCHEMA = TableSchema.from_arrow(
    "t",
    pa.schema(
        {
            "id": pa.string(),
            "i": pa.int32(),
            "l": pa.int64(),
            "bo": pa.bool_(),
            "d": pa.date32(),
            "t": pa.timestamp("us", "UTC"),
            "tn": pa.timestamp("us"),
            "dc": pa.decimal128(10, 2),
            "dx": pa.decimal128(12, 8),
            "f": pa.float64(),
            "st": pa.struct([("a", pa.string()), ("n", pa.struct([("x", pa.int64())]))]),
        }
    ),
)
MOMENT = datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
EARLY = datetime(1969, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def table(**columns: list[object]) -> pa.Table:
    count = len(next(iter(columns.values())))
    filled = [columns.get(field.name, [None] * count) for field in SCHEMA.arrow]
    return pa.table(filled, schema=SCHEMA.arrow)


ROWS = table(
    id=["k2", "k1", "k3"],
    i=[-5, 5, None],
    l=[-10, 10, None],
    bo=[False, True, None],
    d=[date(1969, 12, 31), date(2024, 2, 29), None],
    t=[EARLY, MOMENT, None],
    tn=[EARLY.replace(tzinfo=None), MOMENT.replace(tzinfo=None), None],
    dc=[Decimal("-0.50"), Decimal("12.50"), None],
    dx=[Decimal("0.00001230"), Decimal("0.00000001"), None],
)


def test_complex_keys_of_every_type_read_as_hudi_writes_them() -> None:
    fields = ["id", "i", "l", "bo", "d", "t", "tn", "dc", "dx"]
    made = KeyGenerator.for_table(SCHEMA, fields, ["id"]).record_keys(ROWS)
    assert made.keys.to_pylist() == [
        "id:k2,i:-5,l:-10,bo:false,d:1969-12-31,t:-31438554321099,tn:-31438554321099,dc:-0.50,dx:0.00001230",
        "id:k1,i:5,l:10,bo:true,d:2024-02-29,t:1704164645678901,tn:1704164645678901,dc:12.50,dx:1E-8",
        "id:k3,i:__null__,l:__null__,bo:__null__,d:__null__,t:__null__,tn:__null__,dc:__null__,dx:__null__",
    ]
    assert made.error.null_count == 3


def test_single_field_keys_are_bare_but_for_complex() -> None:
    for kind, partition, expected in (
        (None, ["id"], "5"),
        (None, [], "5"),
        (KeyGeneratorType.COMPLEX, ["id"], "i:5"),
        (KeyGeneratorType.COMPLEX, [], "i:5"),
        (None, ["id", "l"], "i:5"),
    ):
        made = KeyGenerator.for_table(SCHEMA, ["i"], partition, kind=kind).record_keys(ROWS)
        assert made.keys[1].as_py() == expected
    pair = KeyGenerator.for_table(SCHEMA, ["i", "bo"]).record_keys(ROWS)
    assert pair.keys[1].as_py() == "i:5,bo:true"


def test_null_and_empty_keys_have_a_reason_and_no_key() -> None:
    rows = table(id=["a", "", None], i=[1, None, None])
    simple = KeyGenerator.for_table(SCHEMA, ["id"]).record_keys(rows)
    assert simple.keys.to_pylist() == ["a", None, None]
    assert simple.error.to_pylist() == [None, *["record key field id is null or empty"] * 2]
    assert simple.problem.to_pylist() == [None, KeyProblem.EMPTY, KeyProblem.EMPTY]
    pair = KeyGenerator.for_table(SCHEMA, ["id", "i"]).record_keys(rows)
    assert pair.keys.to_pylist() == ["id:a,i:1", None, None]
    some = KeyGenerator.for_table(SCHEMA, ["id", "i"]).record_keys(table(id=["", None], i=[7, 8]))
    assert some.keys.to_pylist() == ["id:__empty__,i:7", "id:__null__,i:8"]


def test_over_long_key_has_a_reason_counted_in_bytes() -> None:
    generator = KeyGenerator.for_table(SCHEMA, ["id"], key_bytes_max=4)
    made = generator.record_keys(table(id=["aaaa", "aaaaa", "éé", "ééé"]))
    assert made.keys.to_pylist() == ["aaaa", None, "éé", None]
    assert made.problem.to_pylist() == [None, KeyProblem.TOO_LONG, None, KeyProblem.TOO_LONG]
    with pytest.raises(UnsupportedTableError, match="32767"):
        KeyGenerator.for_table(SCHEMA, ["id"], key_bytes_max=32768)


def test_nested_fields_are_reached_by_their_dotted_name() -> None:
    rows = table(id=["x", "y", "z"], st=[{"a": "p", "n": {"x": 7}}, {"a": "q", "n": None}, None])
    generator = KeyGenerator.for_table(SCHEMA, ["st.n.x"], ["st.a"], hive_style=True)
    assert generator.record_keys(rows).keys.to_pylist() == ["7", None, None]
    assert generator.partition_paths(rows).keys.to_pylist() == [
        "st.a=p",
        "st.a=q",
        "st.a=__HIVE_DEFAULT_PARTITION__",
    ]


@pytest.mark.parametrize(
    ("hive_style", "expected"),
    [
        (
            False,
            [
                "-5/false/1969-12-31/-0.50",
                "5/true/2024-02-29/12.50",
                "/".join(["__HIVE_DEFAULT_PARTITION__"] * 4),
            ],
        ),
        (
            True,
            [
                "i=-5/bo=false/d=1969-12-31/dc=-0.50",
                "i=5/bo=true/d=2024-02-29/dc=12.50",
                "/".join(f"{name}=__HIVE_DEFAULT_PARTITION__" for name in ("i", "bo", "d", "dc")),
            ],
        ),
    ],
)
def test_partition_paths_of_typed_fields_read_as_hudi_writes_them(
    hive_style: bool, expected: list[str]
) -> None:
    generator = KeyGenerator.for_table(SCHEMA, ["id"], ["i", "bo", "d", "dc"], hive_style=hive_style)
    made = generator.partition_paths(ROWS)
    assert made.keys.to_pylist() == expected
    assert made.error.null_count == 3


def test_unpartitioned_table_has_the_empty_path() -> None:
    made = KeyGenerator.for_table(SCHEMA, ["id"]).partition_paths(ROWS)
    assert made.keys.to_pylist() == [""] * 3
    assert made.error.null_count == 3


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("a*b", "a%2Ab"),
        ("a%20b", "a%2520b"),
        ("a b", "a b"),
        ("{x}", "%7Bx}"),
        ("x=y", "x%3Dy"),
        ("é", "é"),
        ("a[b]", "a%5Bb%5D"),
        ("#h", "%23h"),
        ("a?b", "a%3Fb"),
        ("a+b~t", "a+b~t"),
        ("a\\b", "a%5Cb"),
        ("a/b", "a%2Fb"),
        ("a:b", "a%3Ab"),
        ("a\"b'c^d", "a%22b%27c%5Ed"),
        ("a\x01\x7f", "a%01%7F"),
    ],
)
def test_url_encoding_escapes_what_hudi_escapes(value: str, escaped: str) -> None:
    assert escape_partition_value(value) == escaped
    generator = KeyGenerator.for_table(SCHEMA, ["i"], ["id"], url_encode=True)
    made = generator.partition_paths(table(id=[value], i=[1]))
    assert made.keys.to_pylist() == [escaped]


@pytest.mark.parametrize(
    "value",
    [
        "..",
        ".",
        "../x",
        "a/../b",
        "/abs",
        "a//b",
        "a/",
        ".hoodie",
        ".hoodie_x",
        "a/.hoodie",
        "a\x00b",
        "a\nb",
        "a\x85b",
        "a\\b",
        "a:b",
        "a/b:c",
        "a=b",
        "a%2Fb",
        "x" * 256,
        "é" * 128,
        "/".join(["x" * 200] * 6),
    ],
)
def test_value_that_cannot_be_a_folder_has_a_reason_and_spares_its_neighbours(value: str) -> None:
    generator = KeyGenerator.for_table(SCHEMA, ["i"], ["id"])
    made = generator.partition_paths(table(id=["ok", value, "ok/deep"], i=[1, 2, 3]))
    assert made.keys.to_pylist() == ["ok", None, "ok/deep"]
    assert [reason is None for reason in made.error.to_pylist()] == [True, False, True]


@pytest.mark.parametrize("value", ["..", ".", ".hoodie", "x" * 256])
def test_url_encoding_does_not_make_these_safe(value: str) -> None:
    made = KeyGenerator.for_table(SCHEMA, ["i"], ["id"], url_encode=True).partition_paths(
        table(id=[value], i=[1])
    )
    assert made.keys.to_pylist() == [None]


@pytest.mark.parametrize("value", ["a=b", "a:b", "a%2F"])
def test_hive_style_does_not_make_these_readable(value: str) -> None:
    generator = KeyGenerator.for_table(SCHEMA, ["i"], ["id"], hive_style=True)
    assert generator.partition_paths(table(id=[value], i=[1])).keys.to_pylist() == [None]


def test_slash_in_one_of_several_partition_fields_is_refused() -> None:
    generator = KeyGenerator.for_table(SCHEMA, ["l"], ["id", "i"])
    made = generator.partition_paths(table(id=["a/b", "a"], i=[1, 2], l=[1, 2]))
    assert made.keys.to_pylist() == [None, "a/2"]


def test_date_that_java_would_print_otherwise_has_a_reason() -> None:
    days = pa.array([0, 2932897, -719163], pa.int32()).view(pa.date32())
    rows = ROWS.set_column(ROWS.schema.get_field_index("d"), SCHEMA.arrow.field("d"), days)
    made = KeyGenerator.for_table(SCHEMA, ["d"]).record_keys(rows)
    assert made.keys.to_pylist() == ["1970-01-01", None, None]


@given(st.text(max_size=20))
def test_any_text_becomes_a_safe_path_or_a_reason(value: str) -> None:
    for url_encode in (False, True):
        generator = KeyGenerator.for_table(SCHEMA, ["i"], ["id"], url_encode=url_encode)
        made = generator.partition_paths(table(id=[value], i=[1]))
        path, reason = made.keys[0].as_py(), made.error[0].as_py()
        assert (path is None) != (reason is None)
        if path is not None:
            assert not path.startswith(("/", ".hoodie"))
            assert all(part not in ("", ".", "..") and len(part.encode()) <= 255 for part in path.split("/"))


@pytest.mark.parametrize(
    ("role", "name"),
    [("key", "f"), ("key", "st"), ("partition", "t"), ("partition", "tn"), ("partition", "f")],
)
def test_field_of_an_unserved_type_is_refused(role: str, name: str) -> None:
    keys, partitions = (["id"], [name]) if role == "partition" else ([name], [])
    with pytest.raises(UnsupportedTableError, match=f"field {name} has type"):
        KeyGenerator.for_table(SCHEMA, keys, partitions)


def test_unserved_generator_and_unknown_field_are_refused() -> None:
    for kind in (KeyGeneratorType.TIMESTAMP, KeyGeneratorType.CUSTOM, KeyGeneratorType.OTHER):
        with pytest.raises(UnsupportedTableError, match=kind.value):
            KeyGenerator.for_table(SCHEMA, ["id"], ["i"], kind=kind)
    with pytest.raises(UnsupportedTableError, match="SIMPLE"):
        KeyGenerator.for_table(SCHEMA, ["id", "l"], ["i"], kind=KeyGeneratorType.SIMPLE)
    with pytest.raises(UnsupportedTableError, match="NON_PARTITION"):
        KeyGenerator.for_table(SCHEMA, ["id"], ["i"], kind=KeyGeneratorType.NON_PARTITION)
    with pytest.raises(UnsupportedTableError, match="record key"):
        KeyGenerator.for_table(SCHEMA, [], [])
    with pytest.raises(SchemaError, match="no such column"):
        KeyGenerator.for_table(SCHEMA, ["nope"])


def test_generator_of_a_table_follows_its_properties() -> None:
    definition = TableDefinition(
        name="t",
        table_type=TableType.COPY_ON_WRITE,
        record_key_fields=("id",),
        partition_fields=("i", "bo"),
        hive_style_partitioning=True,
        url_encode_partitioning=True,
    )
    config = parse_table_config(new_table_properties(definition))
    generator = KeyGenerator.from_table_config(config, SCHEMA)
    assert generator.record_keys(ROWS).keys[1].as_py() == "id:k1"
    assert generator.partition_paths(ROWS).keys[1].as_py() == "i=5/bo=true"


def key_from_text(key: bytes, generator: KeyGenerator) -> tuple[str | None, str | None]:
    """Record key and reason of one Kafka key."""
    made = keys_from_text([key], generator)
    return made.keys[0].as_py(), made.error[0].as_py()


def test_kafka_key_is_text_or_the_json_of_the_key_fields() -> None:
    simple = KeyGenerator.for_table(SCHEMA, ["i"], ["id"])
    assert key_from_text(b"17", simple) == ("17", None)
    assert key_from_text(b'{"i": 17, "other": 1}', simple) == ("17", None)
    assert key_from_text(b'{"schema": null, "payload": {"i": 17}}', simple) == ("17", None)
    assert key_from_text(b'{"j": 17}', simple) == ('{"j": 17}', None)
    assert key_from_text(b"{no json", simple) == ("{no json", None)
    pair = KeyGenerator.for_table(SCHEMA, ["id", "d", "dc", "t", "bo", "st.n.x"])
    document = {"id": "a", "d": "2024-02-29", "dc": "12.5", "t": 5, "bo": True, "st": {"n": {"x": 3}}}
    expected = "id:a,d:2024-02-29,dc:12.50,t:5,bo:true,st.n.x:3"
    assert key_from_text(json.dumps(document).encode(), pair) == (expected, None)
    assert key_from_text(expected.encode(), pair) == (expected, None)
    assert key_from_text(
        b'{"id":null,"d":19782,"dc":12.50,"t":null,"bo":null,"st":{"n":{"x":null}}}', pair
    ) == (
        "id:__null__,d:2024-02-29,dc:12.50,t:__null__,bo:__null__,st.n.x:__null__",
        None,
    )


@pytest.mark.parametrize(
    ("key", "problem", "words"),
    [
        (None, KeyProblem.EMPTY, "null or empty"),
        (b"", KeyProblem.EMPTY, "null or empty"),
        (b"\xff\xfe", KeyProblem.UNREADABLE, "neither UTF-8"),
        (b'{"i": "17"}', KeyProblem.UNREADABLE, "key field i"),
        (b'{"i": "the record key is longer, null or empty"}', KeyProblem.UNREADABLE, "key field i"),
        (b'{"i": 1.5}', KeyProblem.UNREADABLE, "key field i"),
        (b'{"i": true}', KeyProblem.UNREADABLE, "key field i"),
        (b'{"i": 2147483648}', KeyProblem.UNREADABLE, "key field i"),
        (b'{"i": null}', KeyProblem.EMPTY, "null or empty"),
        (b"x" * 9000, KeyProblem.TOO_LONG, "longer than"),
        (b"{" * 100000, KeyProblem.TOO_LONG, "longer than"),
    ],
)
def test_bad_kafka_key_has_a_reason_and_spares_its_neighbours(
    key: bytes | None, problem: KeyProblem, words: str
) -> None:
    generator = KeyGenerator.for_table(SCHEMA, ["i"])
    made = keys_from_text([b"1", key, b'{"i":3}'], generator)
    assert made.keys.to_pylist() == ["1", None, "3"]
    assert made.error[0].as_py() is None
    assert words in made.error[1].as_py()
    assert made.problem.to_pylist() == [None, problem, None]


@pytest.mark.parametrize(
    "number",
    [
        "1e-9999999",
        "5e-41",
        "5e-656",
        "123456789012345678901234567890e-414",
        "1e400000000",
        "NaN",
        '"Infinity"',
    ],
)
def test_a_decimal_of_a_kafka_key_that_does_not_fit_is_refused(number: str) -> None:
    generator = KeyGenerator.for_table(SCHEMA, ["dc"])
    keys = [b'{"dc":1.5}', f'{{"dc":{number}}}'.encode(), b'{"dc":0e-9999999}']
    made = keys_from_text(keys, generator)
    assert made.keys.to_pylist() == ["1.50", None, "0.00"]
    assert "key field dc" in made.error[1].as_py()


def test_plain_text_keys_are_taken_as_a_column() -> None:
    generator = KeyGenerator.for_table(SCHEMA, ["i"], key_bytes_max=5)
    made = keys_from_text(pa.array([b"1", None, b"", "é".encode(), b"123456"], pa.binary()), generator)
    assert made.keys.to_pylist() == ["1", None, None, "é", None]
    assert made.error.is_null().to_pylist() == [True, False, False, True, False]
