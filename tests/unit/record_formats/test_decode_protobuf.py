"""Messages of a descriptor file to columns."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.index_assigner.avro_world import decode
from tidemark.config.model import UnknownFields
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.schema import TableSchema
from tidemark.record_formats.decode_protobuf import ProtobufDecoder
from tidemark.record_formats.decoder import DecodedRecords, RowTarget
from tidemark.record_formats.errors import SetupError
from tidemark.record_formats.nested_columns import ELEMENTS_MAX
from tidemark.record_formats.protobuf_message import message_class, message_indexes
from tidemark.record_formats.refusals import DeadLetterReason

Field = descriptor_pb2.FieldDescriptorProto
NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)
SCALARS: dict[str, int] = {
    "id": Field.TYPE_STRING,
    "i": Field.TYPE_SINT32,
    "l": Field.TYPE_INT64,
    "u": Field.TYPE_UINT64,
    "f": Field.TYPE_FLOAT,
    "d": Field.TYPE_DOUBLE,
    "b": Field.TYPE_BOOL,
    "raw": Field.TYPE_BYTES,
    "dec": Field.TYPE_STRING,
    "gone": Field.TYPE_BOOL,
}


def field(name: str, number: int, kind: int, type_name: str | None = None, **more: Any) -> Any:
    label = more.pop("label", Field.LABEL_OPTIONAL)
    return Field(name=name, number=number, type=kind, type_name=type_name, label=label, **more)  # type: ignore[arg-type]


def order_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="PAID", number=1)
    file.message_type.add(name="Other").field.append(field("x", 1, Field.TYPE_INT64))
    order = file.message_type.add(name="Order")
    order.field.extend(field(name, n, kind) for n, (name, kind) in enumerate(SCALARS.items(), 1))
    order.field.extend(
        [
            field("at", 20, Field.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
            field("note", 21, Field.TYPE_MESSAGE, ".google.protobuf.StringValue"),
            field("state", 22, Field.TYPE_ENUM, ".shop.State"),
            field("code", 23, Field.TYPE_ENUM, ".shop.State"),
            field("line", 24, Field.TYPE_MESSAGE, ".shop.Order.Line"),
            field("lines", 25, Field.TYPE_MESSAGE, ".shop.Order.Line", label=Field.LABEL_REPEATED),
            field("tags", 26, Field.TYPE_STRING, label=Field.LABEL_REPEATED),
            field("sums", 27, Field.TYPE_MESSAGE, ".shop.Order.SumsEntry", label=Field.LABEL_REPEATED),
            field("maybe", 28, Field.TYPE_INT64, proto3_optional=True, oneof_index=0),
            field("extra", 29, Field.TYPE_STRING),
        ]
    )
    order.oneof_decl.add(name="_maybe")
    line = order.nested_type.add(name="Line")
    line.field.extend([field("n", 1, Field.TYPE_INT64), field("s", 2, Field.TYPE_STRING)])
    entry = order.nested_type.add(name="SumsEntry")
    entry.field.extend([field("key", 1, Field.TYPE_STRING), field("value", 2, Field.TYPE_INT64)])
    entry.options.map_entry = True
    return file


def descriptor_set(*files: Any) -> bytes:
    known = [timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR]
    listed = descriptor_pb2.FileDescriptorSet()
    for each in known:
        each.CopyToProto(listed.file.add())
    listed.file.extend(files)
    return listed.SerializeToString()


LINE = pa.struct([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])
ORDERS = TableSchema.from_arrow(
    "orders",
    pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("i", pa.int32()),
            pa.field("l", pa.int64()),
            pa.field("u", pa.int64()),
            pa.field("f", pa.float32()),
            pa.field("d", pa.float64()),
            pa.field("b", pa.bool_()),
            pa.field("raw", pa.binary()),
            pa.field("dec", pa.decimal128(10, 2)),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("note", pa.string()),
            pa.field("state", pa.string()),
            pa.field("code", pa.int32()),
            pa.field("line", LINE),
            pa.field("lines", pa.list_(pa.field("element", LINE))),
            pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
            pa.field("sums", pa.map_(pa.string(), pa.field("value", pa.int64()))),
            pa.field("maybe", pa.int64()),
            pa.field("later", pa.string()),
        ]
    ),
)


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("descriptor") / "shop.desc"
    file.write_bytes(descriptor_set(order_file()))
    return message_class(file, "shop.Order")


def decoder(
    order: Any, strict: bool = False, confluent: bool = False, flag: str | None = "gone"
) -> ProtobufDecoder:
    target = RowTarget.of(ORDERS, flag, UnknownFields.ERROR if strict else UnknownFields.DROP)
    return ProtobufDecoder(order, target, KeyGenerator.for_table(ORDERS, ["id"]), confluent)


def rows(order: Any, *records: Any, **how: Any) -> DecodedRecords:
    return decode(decoder(order, **how), *(record.SerializeToString() for record in records))


def test_a_message_of_every_type(order: Any):
    record = order(
        id="a", i=-5, l=2**62, u=7, f=0.5, d=1e300, b=True, raw=b"\xff", dec="1.5", state=1, code=1, maybe=0
    )
    record.at.FromJsonString("2024-02-29T12:00:00.123456789Z")
    record.note.value = ""
    record.line.n = 3
    record.lines.add(n=1, s="x")
    record.lines.add(n=2)
    record.tags.extend(["p", ""])
    record.sums["k"] = 9
    (row,) = rows(order, record).rows.to_pylist()
    scalars = {"id": "a", "i": -5, "l": 2**62, "u": 7, "f": 0.5, "d": 1e300, "b": True, "raw": b"\xff"}
    known = {"dec": Decimal("1.50"), "at": NOON, "note": "", "state": "PAID", "code": 1, "maybe": 0}
    lines = [{"n": 1, "s": "x"}, {"n": 2, "s": ""}]
    nested = {"line": {"n": 3, "s": ""}, "lines": lines, "tags": ["p", ""], "sums": [("k", 9)]}
    assert row == {**scalars, **known, **nested, "later": None}


def test_what_was_not_set_is_null_where_the_message_can_tell(order: Any):
    (row,) = rows(order, order(id="a", dec="0")).rows.to_pylist()
    assert [row[name] for name in ("at", "note", "line", "maybe")] == [None] * 4
    assert (row["l"], row["b"], row["state"], row["lines"], row["sums"]) == (0, False, "NEW", [], [])


def test_values_that_do_not_fit_are_refused_alone(order: Any):
    good, large, text, odd, tiny = (order(id=name, dec="1") for name in "abcde")
    large.u, text.dec, odd.state, tiny.dec = 2**63, "many", 7, "1e-9999999"
    decoded = rows(order, good, large, text, odd, tiny, good)
    assert [each.reason for each in decoded.refused] == [DeadLetterReason.MISTYPED_FIELD] * 4
    assert {each.detail.split()[1].rstrip(":") for each in decoded.refused} == {"u", "dec", "state"}
    assert decoded.rows.column("id").to_pylist() == ["a", "a"]


def test_the_delete_field_is_a_flag(order: Any):
    decoded = rows(order, order(id="a", dec="0", gone=True), order(id="b", dec="0"))
    assert decoded.deletes.tolist() == [True, False]


def test_unknown_fields_are_dropped_or_refused(order: Any):
    extra = order(id="a", dec="0", extra="x")
    assert rows(order, extra).rows.num_rows == 1
    refused = rows(order, extra, order(id="b", dec="0"), strict=True).refused
    assert [(each.position, each.reason) for each in refused] == [(0, DeadLetterReason.UNKNOWN_FIELD)]
    assert {name: at.tolist() for name, at in rows(order, order(id="b"), extra).dropped.items()} == {
        "extra": [1]
    }
    newer = order(id="b", dec="0").SerializeToString() + b"\xf8\x07\x05"
    taken = decode(decoder(order), newer)
    assert taken.rows.num_rows == 1
    assert {name: at.tolist() for name, at in taken.dropped.items()} == {"number 127": [0]}
    inner = b"\x08\x01\xf8\x07\x05"
    nested = newer[:-3] + b"".join(tag + bytes([len(inner)]) + inner for tag in (b"\xc2\x01", b"\xca\x01"))
    told = decode(decoder(order), nested, newer).dropped
    assert {name: at.tolist() for name, at in told.items()} == {
        "number 127": [1],
        "line.number 127": [0],
        "lines[].number 127": [0],
    }
    assert decode(decoder(order, strict=True), newer).refused[0].reason is DeadLetterReason.UNKNOWN_FIELD


def test_nested_messages_of_many_parts_keep_their_order_and_owners(order: Any):
    def lines(first: int, count: int) -> list[Any]:
        return [order.Line(n=n, s=f"s{n}") for n in range(first, first + count)]

    many = 2 * ELEMENTS_MAX + 1
    first, second = order(id="a", dec="0", lines=lines(0, many)), order(id="b", dec="0", lines=lines(7, 3))
    taken = decode(decoder(order), first.SerializeToString(), order(id="c").SerializeToString())
    assert [line["n"] for line in taken.rows["lines"].to_pylist()[0]] == list(range(many))
    inner = b"\x08\x01\xf8\x07\x05"
    newer = second.SerializeToString() + b"\xca\x01" + bytes([len(inner)]) + inner
    both = decode(decoder(order), first.SerializeToString(), newer)
    assert [len(each) for each in both.rows["lines"].to_pylist()] == [many, 4]
    assert {name: at.tolist() for name, at in both.dropped.items()} == {"lines[].number 127": [1]}


def test_bytes_that_are_no_message_are_refused_alone(order: Any):
    good = order(id="a", dec="0").SerializeToString()
    deep = b""
    for _ in range(200):
        deep = b"\xc3\x01" + deep + b"\xc4\x01"
    decoded = decode(decoder(order), good, good[:-1], b"\xff\xff", deep, b"\x0a\x02\xff\xfe", good)
    assert {each.reason for each in decoded.refused} == {DeadLetterReason.NOT_PROTOBUF}
    assert decoded.positions.tolist() == [0, 5]


def test_the_wire_format_names_the_message_in_its_file(order: Any):
    content = order(id="a", dec="0").SerializeToString()
    head = b"\x00\x00\x00\x00\x09"
    assert message_indexes(order.DESCRIPTOR) == [1]
    framed = [
        head + b"\x02\x02" + content,
        head + b"\x00" + content,
        content,
        head + b"\x04\x02\x00" + content,
    ]
    decoded = decode(decoder(order, confluent=True), *framed)
    assert decoded.rows.column("id").to_pylist() == ["a"]
    assert [each.reason for each in decoded.refused] == [
        DeadLetterReason.INCOMPATIBLE_SCHEMA,
        DeadLetterReason.NOT_FRAMED,
        DeadLetterReason.INCOMPATIBLE_SCHEMA,
    ]


def test_the_first_message_of_a_file_may_be_named_by_one_zero(tmp_path: Path):
    (tmp_path / "d").write_bytes(descriptor_set(order_file()))
    other = message_class(tmp_path / "d", "shop.Other")
    schema = TableSchema.from_arrow("t", pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    target = RowTarget.of(schema, None, UnknownFields.DROP)
    made = ProtobufDecoder(other, target, KeyGenerator.for_table(schema, ["x"]), True)
    content = other(x=5).SerializeToString()
    decoded = decode(made, b"\0\0\0\0\1\0" + content, b"\0\0\0\0\1\2\0" + content)
    assert decoded.rows.column("x").to_pylist() == [5, 5]


def test_a_descriptor_that_cannot_be_used_says_why(tmp_path: Path, order: Any):
    file = tmp_path / "shop.desc"
    file.write_bytes(b"\xff\xff")
    with pytest.raises(SetupError, match="no FileDescriptorSet"):
        message_class(file, "shop.Order")
    alone = descriptor_pb2.FileDescriptorSet(file=[order_file()])
    file.write_bytes(alone.SerializeToString())
    with pytest.raises(SetupError, match="timestamp.proto.*--include_imports"):
        message_class(file, "shop.Order")
    file.write_bytes(descriptor_set(order_file()))
    with pytest.raises(SetupError, match="no message Order"):
        message_class(file, "Order")
    wrong = TableSchema.from_arrow(
        "t", pa.schema([pa.field("id", pa.string()), pa.field("lines", pa.int64())])
    )
    with pytest.raises(SetupError, match="field lines"):
        ProtobufDecoder(
            order, RowTarget.of(wrong, None, UnknownFields.DROP), KeyGenerator.for_table(wrong, ["id"]), False
        )


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_decoding_never_raises(order: Any, values: list[bytes]):
    decode(decoder(order), *values)
