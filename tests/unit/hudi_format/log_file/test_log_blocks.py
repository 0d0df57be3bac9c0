"""Log blocks and delete lists: framing to the byte, damage, and every type of ordering value."""

from __future__ import annotations

import io
import struct
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.hudi_format.errors import CorruptFileError, HudiFormatError
from tidemark.hudi_format.log_file import (
    BlockType,
    DeleteTarget,
    HeaderKey,
    OrderingType,
    decode_deletes,
    empty_delete_content,
    encode_deletes,
    frame_block,
    read_blocks,
    rollback_block,
)
from tidemark.hudi_format.log_file.blocks import scan_blocks

INSTANT = "20260101000000000"


def wrapper(name: str, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "value", "type": kind}]}


DELETE_LIST = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieDeleteRecordList",
        "fields": [
            {
                "name": "deleteRecordList",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "HoodieDeleteRecord",
                        "fields": [
                            {"name": "recordKey", "type": ["null", "string"]},
                            {"name": "partitionPath", "type": ["null", "string"]},
                            {
                                "name": "orderingVal",
                                "type": [
                                    "null",
                                    wrapper("BooleanWrapper", "boolean"),
                                    wrapper("IntWrapper", "int"),
                                    wrapper("LongWrapper", "long"),
                                    wrapper("FloatWrapper", "float"),
                                    wrapper("DoubleWrapper", "double"),
                                    wrapper("BytesWrapper", "bytes"),
                                    wrapper("StringWrapper", "string"),
                                    wrapper("DateWrapper", "int"),
                                    wrapper("DecimalWrapper", "bytes"),
                                    wrapper("TimeMicrosWrapper", "long"),
                                    wrapper("TimestampMicrosWrapper", "long"),
                                    {
                                        "type": "record",
                                        "name": "ArrayWrapper",
                                        "fields": [
                                            {
                                                "name": "wrappedValues",
                                                "type": [
                                                    "null",
                                                    {
                                                        "type": "array",
                                                        "items": [
                                                            "null",
                                                            "BooleanWrapper",
                                                            "IntWrapper",
                                                            "LongWrapper",
                                                            "FloatWrapper",
                                                            "DoubleWrapper",
                                                            "BytesWrapper",
                                                            "StringWrapper",
                                                            "DateWrapper",
                                                            "DecimalWrapper",
                                                            "TimeMicrosWrapper",
                                                            "TimestampMicrosWrapper",
                                                            wrapper("LocalDateWrapper", "int"),
                                                        ],
                                                    },
                                                ],
                                            }
                                        ],
                                    },
                                ],
                            },
                        ],
                    },
                },
            }
        ],
    }
)


def by_fastavro(records: list[dict[str, Any]]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, DELETE_LIST, {"deleteRecordList": records})
    return struct.pack(">ii", 3, len(body.getvalue())) + body.getvalue()


HEADERS = st.dictionaries(st.sampled_from(HeaderKey), st.text(max_size=30), max_size=5)
BLOCKS = st.lists(st.tuples(st.sampled_from(BlockType), HEADERS, st.binary(max_size=200)), max_size=5)


@given(BLOCKS)
def test_any_blocks_come_back(blocks: list[tuple[BlockType, dict[HeaderKey, str], bytes]]) -> None:
    data = b"".join(frame_block(*block) for block in blocks)
    read = read_blocks(data, "a.log")
    assert [(each.block_type, dict(each.headers), bytes(each.content)) for each in read] == blocks
    assert [data[each.offset : each.offset + 6] for each in read] == [b"#HUDI#"] * len(blocks)


def scanned(data: bytes, *wanted: BlockType) -> list[tuple[BlockType, int, bytes]]:
    found = scan_blocks(pa.BufferReader(data), "a.log", lambda kind, headers: kind in wanted)
    return [(each.block_type, each.offset, bytes(each.content)) for each in found]


@given(BLOCKS, st.sets(st.sampled_from(BlockType)))
def test_a_scan_has_the_wanted_blocks_alone(
    blocks: list[tuple[BlockType, dict[HeaderKey, str], bytes]], wanted: set[BlockType]
) -> None:
    data = b"".join(frame_block(*block) for block in blocks)
    read = [each for each in read_blocks(data, "a.log") if each.block_type in wanted]
    assert scanned(data, *wanted) == [(each.block_type, each.offset, bytes(each.content)) for each in read]


def test_a_scan_reads_little_of_what_is_not_wanted() -> None:
    head = {HeaderKey.INSTANT_TIME: INSTANT, HeaderKey.SCHEMA: "s" * 40_000}
    data = frame_block(BlockType.PARQUET_DATA, {HeaderKey.INSTANT_TIME: INSTANT}, bytes(1 << 20))
    data += frame_block(BlockType.DELETE, head, empty_delete_content())
    assert [kind for kind, _, _ in scanned(data, BlockType.DELETE)] == [BlockType.DELETE]
    assert scanned(data, BlockType.AVRO_DATA) == []

    class Counting:
        read = 0

        def size(self) -> int:
            return len(data)

        def read_at(self, count: int, offset: int) -> bytes:
            self.read += count
            return data[offset : offset + count]

    file = Counting()
    assert len(list(scan_blocks(file, "a.log", lambda kind, headers: kind is BlockType.DELETE))) == 1
    assert file.read < 100_000


@pytest.mark.parametrize("cut", [1, 5, 8, 40, 79])
def test_a_scan_meets_a_cut_off_block_as_an_error(cut: int) -> None:
    good = frame_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: INSTANT}, empty_delete_content())
    with pytest.raises(CorruptFileError, match="a.log.* offset 80"):
        scanned(good + good[:-cut], BlockType.DELETE)


def test_the_first_log_file_of_a_file_group_has_80_bytes() -> None:
    data = frame_block(
        BlockType.DELETE, {HeaderKey.INSTANT_TIME: "00000000000000001"}, empty_delete_content()
    )
    assert len(data) == 80
    assert empty_delete_content() == bytes.fromhex("000000030000000100")
    assert len(decode_deletes(read_blocks(data, "x")[0].content, "x")) == 0


@pytest.mark.parametrize("cut", [1, 5, 8, 40, 79])
def test_a_cut_off_block_is_an_error_with_its_offset(cut: int) -> None:
    good = frame_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: INSTANT}, empty_delete_content())
    with pytest.raises(CorruptFileError, match="a.log.* offset 80"):
        read_blocks(good + good[:-cut], "a.log")


def test_a_damaged_block_in_the_middle_is_passed_over_where_that_is_asked_for() -> None:
    good = frame_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: INSTANT}, empty_delete_content())
    read = read_blocks(good + good[:-3] + good, "a.log", strict=False)
    assert [each.block_type for each in read] == [BlockType.DELETE, BlockType.CORRUPT, BlockType.DELETE]
    assert len(read[1].content) == 77


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(1, 255))
def test_a_flipped_byte_of_the_framing_never_escapes_as_another_error(
    content: bytes, at: int, flip: int
) -> None:
    data = bytearray(frame_block(BlockType.PARQUET_DATA, {HeaderKey.INSTANT_TIME: INSTANT}, content))
    data[at % len(data)] ^= flip
    try:
        outcome = str(len(read_blocks(bytes(data), "a.log")))
    except CorruptFileError as error:
        outcome = str(error)
    assert outcome == "1" or "a.log" in outcome


def test_a_rollback_block_names_its_target() -> None:
    block = read_blocks(rollback_block("2", "1"), "x")[0]
    assert (block.block_type, block.instant_time, block.rolled_back_instant) == (BlockType.COMMAND, "2", "1")


def test_compacted_block_times_are_a_list() -> None:
    headers = {HeaderKey.INSTANT_TIME: "3", HeaderKey.COMPACTED_BLOCK_TIMES: "1,2"}
    assert read_blocks(frame_block(BlockType.HFILE_DATA, headers, b""), "x")[0].compacted_block_times == (
        "1",
        "2",
    )


KEYS = ["a", "ключ", "x" * 200]


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (OrderingType.INT, "IntWrapper", [0, -1, 2**31 - 1]),
        (OrderingType.LONG, "LongWrapper", [0, -(2**63), 2**63 - 1]),
        (OrderingType.DATE, "DateWrapper", [0, 20_000, -5]),
        (OrderingType.TIMESTAMP_MICROS, "TimestampMicrosWrapper", [0, 1_700_000_000_000_000, -1]),
        (OrderingType.FLOAT, "FloatWrapper", [0.0, 1.5, -2.25]),
        (OrderingType.DOUBLE, "DoubleWrapper", [0.0, 1e300, -0.1]),
        (OrderingType.BOOLEAN, "BooleanWrapper", [True, False, True]),
        (OrderingType.STRING, "StringWrapper", ["", "ü", "z" * 100]),
        (OrderingType.BYTES, "BytesWrapper", [b"", b"\x00\xff", b"q" * 70]),
    ],
)
def test_each_ordering_type_is_written_as_avro_has_it_and_read_back(
    kind: OrderingType, name: str, values: list[Any]
) -> None:
    expected = by_fastavro(
        [
            {"recordKey": key, "partitionPath": "p/q", "orderingVal": (name, {"value": value})}
            for key, value in zip(KEYS, values, strict=True)
        ]
    )
    assert encode_deletes(pa.array(KEYS), "p/q", kind, pa.array(values)) == expected
    read = decode_deletes(expected, "x")
    assert read.keys.to_pylist() == KEYS
    assert read.ordering_values() == values
    assert {target.ordering_type for target in read.targets} == {kind}


def test_one_ordering_value_for_all_and_partition_paths_per_record() -> None:
    expected = by_fastavro(
        [
            {"recordKey": key, "partitionPath": path, "orderingVal": ("IntWrapper", {"value": 0})}
            for key, path in zip(KEYS, ["", "eu", "eu"], strict=True)
        ]
    )
    assert encode_deletes(pa.array(KEYS), pa.array(["", "eu", "eu"])) == expected
    assert decode_deletes(expected, "x").partition_paths() == ["", "eu", "eu"]


def test_records_of_several_kinds_in_one_block_are_read() -> None:
    content = by_fastavro(
        [
            {"recordKey": "a", "partitionPath": None, "orderingVal": None},
            {"recordKey": "b", "partitionPath": "p", "orderingVal": ("DecimalWrapper", {"value": b"\x01"})},
            {
                "recordKey": "c",
                "partitionPath": "p",
                "orderingVal": (
                    "ArrayWrapper",
                    {
                        "wrappedValues": [
                            ("LongWrapper", {"value": 7}),
                            ("LocalDateWrapper", {"value": 3}),
                            None,
                        ]
                    },
                ),
            },
            {"recordKey": "d", "partitionPath": None, "orderingVal": None},
        ]
    )
    read = decode_deletes(content, "x")
    assert read.target_ids.tolist() == [0, 1, 2, 0]
    assert read.targets == (
        DeleteTarget(None, OrderingType.NULL, None),
        DeleteTarget("p", OrderingType.DECIMAL, b"\x01"),
        DeleteTarget("p", OrderingType.ARRAY, (7, 3, None)),
    )


@given(st.lists(st.text(max_size=30), max_size=30), st.text(max_size=10), st.integers(-(2**63), 2**63 - 1))
def test_any_deletes_come_back(keys: list[str], partition_path: str, value: int) -> None:
    ordering = np.full(len(keys), value, np.int64)
    content = encode_deletes(pa.array(keys, pa.string()), partition_path, OrderingType.LONG, ordering)
    read = decode_deletes(content, "x")
    assert read.keys.to_pylist() == keys
    assert read.targets == ((DeleteTarget(partition_path, OrderingType.LONG, value),) if keys else ())


def test_ordering_values_of_another_number_are_refused() -> None:
    with pytest.raises(HudiFormatError):
        encode_deletes(pa.array(["a", "b"]), "", OrderingType.LONG, np.array([1]))
    with pytest.raises(HudiFormatError):
        encode_deletes(pa.array(["a"]), "", OrderingType.DOUBLE, 1)


@pytest.mark.parametrize("damage", [b"", b"\x00\x00\x00\x02", struct.pack(">ii", 3, 5) + b"\x02\x02"])
def test_damaged_delete_lists_are_corrupt(damage: bytes) -> None:
    with pytest.raises(CorruptFileError, match="f.log"):
        decode_deletes(damage, "f.log")
