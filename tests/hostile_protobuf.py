"""Protobuf messages as a hostile, broken or careless producer may write them, from a seeded generator.

The message has the fields of `tests.hostile_formats.SCHEMA`, and a few that only Protobuf has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from tests.hostile_avro import Made, making, reasons

MESSAGE: Final = "shop.Row"
_HEADER: Final = b"\0\0\0\0\x2a"
_SOUND_INDEX: Final = b"\0"
_VARINT, _FIXED64, _BYTES, _GROUP, _END, _FIXED32 = range(6)
NOT_FRAMED: Final = reasons("not-framed")
NOT_PROTOBUF: Final = reasons("not-protobuf")
WRONG_INDEX: Final = reasons("incompatible-schema")
MISTYPED: Final = reasons("mistyped-field")
ANY: Final = reasons("", "not-protobuf", "mistyped-field", "null-key", "bad-partition", "key-too-long")


def write_descriptor(file: Path) -> None:
    """The message's descriptor file, as protoc writes it. proto2: there text of any bytes is parsed."""
    described = descriptor_pb2.FileDescriptorProto(name="rows.proto", package="shop", syntax="proto2")
    described.dependency.append("google/protobuf/timestamp.proto")
    row = described.message_type.add(name="Row")
    inner = described.message_type.add(name="Inner")
    inner.field.append(_field("n", 1, Field.TYPE_INT64))
    inner.field.append(_field("s", 2, Field.TYPE_STRING))
    row.field.extend(
        [
            _field("id", 1, Field.TYPE_STRING),
            _field("region", 2, Field.TYPE_STRING),
            _field("at", 3, Field.TYPE_SINT64),
            _field("name", 4, Field.TYPE_STRING),
            _field("amount", 5, Field.TYPE_STRING),
            _field("when", 6, Field.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
            _field("list", 7, Field.TYPE_UINT64, label=Field.LABEL_REPEATED),
            _field("rec", 8, Field.TYPE_MESSAGE, ".shop.Inner"),
            _field("items", 9, Field.TYPE_MESSAGE, ".shop.Inner", label=Field.LABEL_REPEATED),
            _field("beyond", 10, Field.TYPE_MESSAGE, ".shop.Row"),
            _field("old", 11, Field.TYPE_GROUP, ".shop.Row.Old"),
        ]
    )
    row.nested_type.add(name="Old").field.append(_field("x", 1, Field.TYPE_INT64))
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[stamp, described]).SerializeToString())


def _field(name: str, number: int, kind: int, type_name: str | None = None, **more: Any) -> Any:
    label = more.pop("label", Field.LABEL_OPTIONAL)
    return Field(name=name, number=number, type=kind, type_name=type_name, label=label)  # type: ignore[arg-type]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def tag(number: int, kind: int) -> bytes:
    return varint(number << 3 | kind)


def _sized(number: int, content: bytes) -> bytes:
    return tag(number, _BYTES) + varint(len(content)) + content


def _body(key: str, *more: bytes) -> bytes:
    fields = _sized(1, key.encode()) + _sized(2, b"eu") + tag(3, _VARINT) + varint(10)
    return fields + b"".join(more)


def sound(key: str) -> bytes:
    """A good record."""
    return _framed(_body(key, _sized(4, b"n")))


def _framed(body: bytes, index: bytes = _SOUND_INDEX) -> bytes:
    return _HEADER + index + body


def _nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + closing * depth


def _deep_messages(random: Random) -> bytes:
    content = b""
    for _ in range(random.choice([90, 150, 2_000, 10_000])):
        content = _sized(10, content)
    return content


def _indexes(random: Random) -> bytes:
    count = random.choice([2**31, 2**62, 5_000])
    return varint(count << 1) + b"\0" * random.randrange(200)


_HUGE: Final = (2**31 - 1, 2**31, 2**32, 2**62, 2**64 - 1)
Body = Callable[[Random], bytes]
_BODIES: Final[dict[str, tuple[Body, frozenset[str]]]] = {
    "garbage": (lambda r: b"\xff" + r.randbytes(r.randrange(300)), NOT_PROTOBUF | ANY),
    "endless varint": (lambda r: tag(3, _VARINT) + b"\xff" * r.choice([11, 100, 50_000]), NOT_PROTOBUF),
    "varint without an end": (lambda r: tag(3, _VARINT) + b"\xff" * r.randrange(1, 10), NOT_PROTOBUF),
    "length beyond the end": (lambda r: tag(4, _BYTES) + varint(r.choice(_HUGE)) + b"abc", NOT_PROTOBUF),
    "length beyond the end, field unknown": (
        lambda r: tag(500, _BYTES) + varint(r.choice(_HUGE)) + b"abc",
        NOT_PROTOBUF,
    ),
    "packed list beyond the end": (lambda r: tag(7, _BYTES) + varint(r.choice(_HUGE)) + b"\1", NOT_PROTOBUF),
    "packed list cut in a varint": (lambda _: _sized(7, b"\1\2\xff"), NOT_PROTOBUF),
    "groups nested deep": (
        lambda r: (
            _nested(tag(11, _GROUP), tag(11, _END), 1)
            if r.random() < 0.1
            else _nested(tag(99, _GROUP), tag(99, _END), r.choice([90, 101, 10_000, 100_000]))
        ),
        NOT_PROTOBUF | ANY,
    ),
    "groups without an end": (lambda r: tag(99, _GROUP) * r.choice([1, 50, 10_000]), NOT_PROTOBUF),
    "end of a group that did not begin": (lambda _: tag(11, _END), NOT_PROTOBUF),
    "end of another group": (lambda _: tag(98, _GROUP) + tag(99, _END), NOT_PROTOBUF),
    "messages nested deep": (_deep_messages, NOT_PROTOBUF | ANY),
    "wrong wire type": (
        lambda r: tag(r.choice([1, 3, 6, 8]), r.choice([_FIXED32, _FIXED64])) + b"\1" * 8,
        ANY,
    ),
    "wire type that is none": (lambda r: varint(4 << 3 | r.choice([6, 7])) + b"\1", NOT_PROTOBUF),
    "field number 0": (lambda r: tag(0, r.choice([_VARINT, _BYTES])) + b"\0", NOT_PROTOBUF),
    "field number beyond all": (lambda _: varint(2**35 | _VARINT) + b"\1", NOT_PROTOBUF),
    "text that is no UTF-8": (lambda r: _sized(4, b"\xff" + r.randbytes(20)), MISTYPED | NOT_PROTOBUF),
    "text in a record that is no UTF-8": (
        lambda _: _sized(8, _sized(2, b"\xff\xfe")),
        MISTYPED | NOT_PROTOBUF,
    ),
    "time beyond all": (
        lambda r: _sized(6, tag(1, _VARINT) + varint(r.choice([2**63 - 1, 2**63, 2**62]))),
        MISTYPED,
    ),
    "decimal that is none": (
        lambda r: _sized(
            5,
            r.choice(
                [
                    b"x",
                    b"1e999999999",
                    b"9" * 100_000,
                    b"NaN",
                    b"-Infinity",
                    b"1" * 39,
                    b"5e-656",
                    b"1e-9999999",
                ]
            ),
        ),
        MISTYPED,
    ),
    "number beyond a column": (lambda _: tag(7, _VARINT) + varint(2**64 - 1), MISTYPED),
    "many unknown fields": (lambda r: (tag(77, _VARINT) + b"\1") * r.choice([10, 300_000]), ANY),
    "unknown fields of many numbers": (
        lambda _: b"".join(tag(n, _VARINT) + b"\1" for n in range(1_000, 40_000)),
        ANY,
    ),
    "many empty records": (lambda r: _sized(9, b"") * r.choice([10, 400_000]), ANY),
    "the same field many times": (lambda r: _sized(4, b"x") * r.choice([10, 200_000]), ANY),
    "message in pieces": (lambda r: _sized(8, tag(1, _VARINT) + b"\1") * r.choice([10, 200_000]), ANY),
}


def hostile_protobuf() -> dict[str, Callable[[Random], Made]]:
    """What makes values of each kind."""
    kinds: dict[str, Callable[[Random], Made]] = {
        "empty value": lambda _: (b"", NOT_FRAMED),
        "header cut short": lambda r: (_HEADER[: r.randrange(1, 5)], NOT_FRAMED),
        "wrong magic byte": lambda r: (bytes([r.randrange(1, 256)]) + sound("x")[1:], NOT_FRAMED),
        "schema id of any number": lambda r: (
            b"\0" + struct.pack(">I", r.randrange(2**32)) + sound("x")[5:],
            reasons(""),
        ),
        "header without an index": lambda _: (_HEADER, WRONG_INDEX),
        "index of another message": lambda r: (
            _framed(_body("x"), r.choice([b"\2\2", b"\2\xfe\1", b"\4\0\2"])),
            ANY | WRONG_INDEX,
        ),
        "index of huge count": lambda r: (_framed(_body("x"), _indexes(r)), WRONG_INDEX),
        "index of an endless varint": lambda r: (_framed(b"", b"\xff" * r.choice([3, 1_000])), WRONG_INDEX),
        "no body": lambda _: (_framed(b""), reasons("null-key", "missing-key")),
        "body cut short": lambda r: (
            sound("cut" * 9)[: r.randrange(6, 40)],
            ANY | reasons("missing-key", "null-ordering"),
        ),
        "body with a byte changed": _changed,
    }
    for kind, (made, become) in _BODIES.items():
        kinds[kind] = making(made, become, lambda body: _framed(_body("x", body)))
    return kinds


def _changed(random: Random) -> Made:
    whole = bytearray(sound("changed"))
    whole[random.randrange(6, len(whole))] = random.randrange(256)
    return bytes(whole), ANY | reasons("missing-key", "null-ordering")
