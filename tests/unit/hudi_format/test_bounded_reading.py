"""Crafted files: small ones that claim much. Each is refused by name, at once, whatever it claims."""

from __future__ import annotations

import io
import json
import struct
import time
import zlib
from collections.abc import Iterator

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.errors import ErrorKind
from tidemark.hudi_format import parsed_avro
from tidemark.hudi_format.columnar import zigzag_varint
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.file_group.avro_rows import avro_row_chunks
from tidemark.hudi_format.hfile import HFileReader
from tidemark.hudi_format.hfile.key_values import encode_entries
from tidemark.hudi_format.hfile.layout import Codec, HFileBlockType, Trailer, hadoop_vint, pack_block
from tidemark.hudi_format.index_definitions import INDEX_DEFINITIONS_PATH, read_index_definitions
from tidemark.hudi_format.parquet_files import open_parquet, parquet_damage
from tidemark.hudi_format.parsed_avro import parsed_container, parsed_record, parsed_schema
from tidemark.hudi_format.timeline.archived import ArchivedTimeline

SYNC = bytes(16)
ONE_FIELD = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
EMPTY = {"type": "record", "name": "R", "fields": []}
AT_ONCE_S = 60.0


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """Generous: what is meant takes milliseconds, and took minutes or the process."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < AT_ONCE_S


def container(schema: object, count: int, body: bytes, codec: bytes = b"null") -> bytes:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    meta = b"".join(zigzag_varint(len(part)) + part for part in (b"avro.schema", text, b"avro.codec", codec))
    header = b"Obj\x01" + zigzag_varint(2) + meta + zigzag_varint(0) + SYNC
    return header + zigzag_varint(count) + zigzag_varint(len(body)) + body + SYNC


def test_a_container_with_one_record_is_read_under_both_codecs() -> None:
    assert parsed_container(container(ONE_FIELD, 1, zigzag_varint(5)), "f") == {"n": 5}
    deflated = zlib.compress(zigzag_varint(5))[2:-4]
    assert parsed_container(container(ONE_FIELD, 1, deflated, b"deflate"), "f") == {"n": 5}


def test_another_library_and_this_one_agree_on_containers() -> None:
    for codec in ("null", "deflate"):
        made = io.BytesIO()
        fastavro.writer(made, ONE_FIELD, [{"n": -7}], codec=codec)
        assert parsed_container(made.getvalue(), "f") == {"n": -7}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (container(EMPTY, 10**8, b""), "100000000 Avro records"),
        (container(ONE_FIELD, 2, b"\x02\x02"), "2 Avro records"),
        (container(ONE_FIELD, 0, b""), "0 Avro records"),
        (container(ONE_FIELD, 1, b"\x02\x02"), "ends at byte 1 of 2"),
        (container(ONE_FIELD, 1, b""), "not readable"),
        (container(ONE_FIELD, -1, b"\x02"), "-1 records"),
        (container(ONE_FIELD, 1, b"\x02", b"snappy"), "snappy"),
        (container(ONE_FIELD, 1, b"\xff" * 9, b"deflate"), "deflated"),
        (container(b"[" * 100_000, 1, b""), "not readable"),
        (container(b"[" * 500 + b"]" * 500, 1, b""), "200 levels"),
        (container(ONE_FIELD, 1, b"\x02")[:-1], "sync marker"),
        (container(ONE_FIELD, 1, b"\x02") * 2, "records"),
        (b"", "begin"),
        (b"Obj\x01" + b"\xff" * 40, "varint"),
    ],
)  # fmt: skip
def test_a_container_that_is_not_exactly_one_record_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(CorruptFileError, match=says) as refused:
        parsed_container(data, "t/c.commit")
    assert str(refused.value).startswith("t/c.commit")
    assert refused.value.kind is ErrorKind.CORRUPT


def test_a_deflated_block_ends_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsed_avro, "INFLATED_BYTES_MAX", 1 << 16)
    bomb = zlib.compress(bytes(10 << 20))[2:-4]
    with pytest.raises(CorruptFileError, match="at most 65536"):
        parsed_container(container(ONE_FIELD, 1, bomb, b"deflate"), "f")


def test_a_record_inside_itself_is_refused_before_anything_is_decoded() -> None:
    """A million levels fit into two megabytes; the decoder would run out of the process's stack."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}
    for each in (schema, {**schema, "namespace": "a.b"}):
        with pytest.raises(CorruptFileError, match="inside itself"):
            parsed_container(container(each, 1, b"\x02" * 2_000_000 + b"\x00"), "f")


def test_a_schema_that_doubles_is_refused_and_one_that_repeats_a_type_is_not() -> None:
    inner: object = "null"
    for level in range(40):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{level - 1}" if level else "null"}]
        inner = {"type": "record", "name": f"R{level}", "fields": fields}
    with pytest.raises(CorruptFileError, match="values"):
        parsed_container(container(inner, 1, b""), "f")
    twice = {
        "type": "record",
        "name": "T",
        "namespace": "x",
        "fields": [
            {"name": "a", "type": ONE_FIELD},
            {"name": "b", "type": "R"},
            {"name": "c", "type": "x.R"},
        ],
    }
    assert parsed_container(container(twice, 1, b"\x02\x04\x06"), "f") == {
        "a": {"n": 1},
        "b": {"n": 2},
        "c": {"n": 3},
    }


@pytest.mark.parametrize("items", ["null", EMPTY, {"type": "fixed", "name": "F", "size": 0}])
def test_items_that_take_no_bytes_are_refused(items: object) -> None:
    schema = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "a", "type": {"type": "array", "items": items}}],
    }
    body = zigzag_varint(10**9) + b"\x00"
    with pytest.raises(CorruptFileError, match="no bytes"):
        parsed_record(body, parsed_schema(json.dumps(schema), "f"), "f")


def rows_block(count: int, lengths: tuple[int, ...] = (1, 1, 1)) -> bytes:
    rows = b"".join(struct.pack(">i", length) + zigzag_varint(n) for n, length in enumerate(lengths))
    return struct.pack(">ii", 3, count) + rows


def test_the_count_and_the_lengths_of_avro_rows_have_to_fit() -> None:
    schema = json.dumps(ONE_FIELD)
    assert sum(rows.num_rows for rows in avro_row_chunks(rows_block(3), schema, "f")) == 3
    for count in (-1, 0, 1, 2, 4, 2**31 - 1):
        with pytest.raises(CorruptFileError, match="f: "):
            list(avro_row_chunks(rows_block(count), schema, "f"))
    for lengths in ((1, 0, 1), (1, 2, 1), (1, 1, -1)):
        with pytest.raises(CorruptFileError, match="f: "):
            list(avro_row_chunks(rows_block(3, lengths), schema, "f"))
    with pytest.raises(CorruptFileError, match=r"f: .*content version 9"):
        list(avro_row_chunks(b"\0\0\0\x09\0\0\0\0", schema, "f"))
    with pytest.raises(CorruptFileError, match="f: the schema of a data block"):
        list(avro_row_chunks(rows_block(3), "[" * 100_000, "f"))


def test_index_definitions_nested_deep_are_refused() -> None:
    for text in (b"[" * 100_000, b'{"indexDefinitions": {"record_index": {"indexOptions": "x"}}}', b"[]"):
        storage = InMemoryStorage()
        storage.create(INDEX_DEFINITIONS_PATH, text)
        with pytest.raises(CorruptFileError, match=INDEX_DEFINITIONS_PATH):
            read_index_definitions(storage)


def hfile_naming_one_block(times: int) -> bytes:
    keys = pa.array(["a", "b"])
    payload = encode_entries(keys, pa.array([b"1", b"2"])).data.tobytes()
    block = pack_block(HFileBlockType.DATA, payload, Codec.NONE, 1, -1)
    key = struct.pack(">h", 1) + b"a"
    entry = struct.pack(">qi", 0, len(block)) + hadoop_vint(len(key)) + key
    index = pack_block(HFileBlockType.ROOT_INDEX, entry * times, Codec.NONE, 1, -1)
    info = pack_block(HFileBlockType.FILE_INFO, b"PBUF\x00", Codec.NONE, 1, -1)
    trailer = Trailer(
        file_info_offset=len(block) + len(index),
        load_on_open_offset=len(block),
        uncompressed_bytes=len(payload),
        data_index_count=times,
        meta_index_count=0,
        entry_count=2 * times,
        index_levels=1,
        first_data_block_offset=0,
        last_data_block_offset=0,
        codec=Codec.NONE,
    )
    return block + index + info + trailer.pack()


def test_an_index_that_names_one_block_many_times_is_refused() -> None:
    assert len(HFileReader.from_bytes(hfile_naming_one_block(1), "h").read_all()) == 2
    with pytest.raises(CorruptFileError, match=r"h: the index has a block"):
        HFileReader.from_bytes(hfile_naming_one_block(800), "h").read_all()


def test_run_lengths_that_claim_more_rows_than_keys_could_be_packed_in_are_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"_hoodie_record_key": pa.repeat(pa.scalar("k"), 5_000_000)}), sink)
    with pytest.raises(CorruptFileError, match=r"p/f\.parquet: .*5000000 rows"):
        open_parquet(sink.getvalue(), "p/f.parquet")


def test_storage_that_refuses_is_no_damage_and_damage_is_no_refusal() -> None:
    with pytest.raises(OSError, match="Input/output") as refused, parquet_damage("f"):
        raise OSError(5, "Input/output error")
    assert not isinstance(refused.value, CorruptFileError)
    with pytest.raises(CorruptFileError, match="f is no readable Parquet file"), parquet_damage("f"):
        raise OSError("Couldn't deserialize thrift")


@pytest.mark.parametrize("version", [b"\xff\xfe", b"1x", b"-1", b"9" * 50, b"../../x"])
def test_a_version_of_the_archive_that_is_no_number_says_nothing_and_the_newest_manifest_counts(
    version: bytes,
) -> None:
    storage = InMemoryStorage()
    storage.create(".hoodie/timeline/history/_version_", version)
    assert ArchivedTimeline(storage).completion_times() == {}
    storage.create(".hoodie/timeline/history/manifest_3", b"{}")
    storage.create(".hoodie/timeline/history/manifest_12", b"no manifest")
    with pytest.raises(CorruptFileError, match="history/manifest_12"):
        ArchivedTimeline(storage).completion_times()
