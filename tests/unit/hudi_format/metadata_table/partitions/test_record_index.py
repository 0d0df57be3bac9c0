"""Record index entries: their values, their log files, their merging."""

from __future__ import annotations

import io
import json
import uuid

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.hudi_format.errors import CorruptFileError, HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.hfile import HFileReader
from tidemark.hudi_format.log_file import BlockType, HeaderKey, decode_deletes, read_blocks
from tidemark.hudi_format.metadata_table.partitions.partition import StoredEntries
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RecordIndexEntries,
    RecordIndexFileId,
    decode_entries,
    escape_partition,
    parse_record_index_file_id,
    record_index_file_id,
    write_record_index_log,
)
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import decode_values, encode_values
from tidemark.hudi_format.metadata_table.record_schema import commit_schema, metadata_record_schema
from tidemark.hudi_format.model import RecordLocation, ShardId

INSTANT = "20260101000000000"
UUID_ID = "0f0e0d0c-0b0a-4908-8706-050403020100"

FILE_IDS = st.one_of(
    st.uuids().map(str),
    st.tuples(st.uuids().map(str), st.integers(0, 2**31 - 1)).map("{0[0]}-{0[1]}".format),
    st.text("abc-0123456789", min_size=1, max_size=40),
    st.uuids().map(lambda each: str(each).upper() + "-0"),
)
LOCATIONS = st.builds(RecordLocation, st.text(max_size=12), FILE_IDS)


def one(location: RecordLocation, instant_ms: int = 0) -> RecordIndexEntries:
    return RecordIndexEntries(pa.array(["k"]), np.zeros(1, np.int32), [location], np.array([instant_ms]))


@settings(deadline=None)
@given(st.lists(st.tuples(LOCATIONS, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=20))
def test_any_location_and_instant_come_back_by_both_decoders(rows: list[tuple[RecordLocation, int]]) -> None:
    locations = [location for location, _ in rows]
    values = encode_values(
        np.arange(len(rows), dtype=np.int32), locations, np.array([ms for _, ms in rows], np.int64)
    )
    renamed = metadata_record_schema().replace('"HoodieMetadataRecord"', '"SomethingElse"')
    for schema in ("", metadata_record_schema(), renamed):
        ids, known, instants = decode_values(values, schema, "x")
        assert [(known[number], ms) for number, ms in zip(ids, instants.tolist(), strict=True)] == rows


@pytest.mark.parametrize(
    ("file_id", "expected"),
    [
        (f"{UUID_ID}-7", {"fileIdEncoding": 0, "fileIndex": 7, "fileId": ""}),
        (UUID_ID, {"fileIdEncoding": 0, "fileIndex": -1, "fileId": ""}),
        ("my-file", {"fileIdEncoding": 1, "fileIndex": -1, "fileId": "my-file", "fileIdHighBits": -1}),
        (f"{UUID_ID}-07", {"fileIdEncoding": 1, "fileId": f"{UUID_ID}-07"}),
        (f"{UUID_ID}-2147483648", {"fileIdEncoding": 1}),
        (UUID_ID.upper(), {"fileIdEncoding": 1}),
    ],
)
def test_the_value_is_the_avro_record_that_hudi_expects(file_id: str, expected: dict[str, object]) -> None:
    value = encode_values(np.zeros(1, np.int32), [RecordLocation("p", file_id)], np.array([5]))[0].as_py()
    schema = fastavro.parse_schema(json.loads(metadata_record_schema()))
    record = fastavro.schemaless_reader(io.BytesIO(value), schema, None)
    assert isinstance(record, dict)
    assert (record["key"], record["type"], record["_hoodie_file_name"]) == ("", 5, None)
    info = record["recordIndexMetadata"]
    assert (info["partitionName"], info["instantTime"], info["position"]) == ("p", 5, None)
    assert {name: info[name] for name in expected} == expected
    if expected["fileIdEncoding"] == 0:
        bits = (info["fileIdHighBits"] % 2**64) << 64 | info["fileIdLowBits"] % 2**64
        assert str(uuid.UUID(int=bits)) == UUID_ID


def test_a_value_with_meta_fields_as_compaction_writes_them_is_read() -> None:
    schema = fastavro.parse_schema(json.loads(metadata_record_schema()))
    body = io.BytesIO()
    info = {
        "partitionName": "p",
        "fileIdHighBits": 0,
        "fileIdLowBits": 1,
        "fileIndex": 2,
        "fileId": "",
        "instantTime": 3,
    }
    record = {"key": "", "type": 5, "_hoodie_file_name": "x.hfile", "recordIndexMetadata": info}
    fastavro.schemaless_writer(body, schema, record)
    ids, locations, instants = decode_values(pa.array([body.getvalue()]), metadata_record_schema(), "x")
    expected = RecordLocation("p", "00000000-0000-0000-0000-000000000001-2")
    assert (ids.tolist(), locations, instants.tolist()) == ([0], [expected], [3])


def test_an_empty_value_is_a_delete() -> None:
    ids, locations, _ = decode_values(pa.array([b""], pa.binary()), "", "x")
    assert (ids.tolist(), locations) == ([-1], [])


@pytest.mark.parametrize("damage", [b"\x00", b"\x00" * 30, b"\xff" * 30])
def test_a_damaged_value_is_corrupt(damage: bytes) -> None:
    with pytest.raises(CorruptFileError, match="f.hfile"):
        decode_values(pa.array([damage]), "", "f.hfile")


def log_content(data: bytes) -> dict[str, RecordLocation | None]:
    found: dict[str, RecordLocation | None] = {}
    for block in read_blocks(data, "x"):
        assert block.headers == {HeaderKey.INSTANT_TIME: INSTANT, HeaderKey.SCHEMA: metadata_record_schema()}
        if block.block_type is BlockType.DELETE:
            deletes = decode_deletes(block.content, "x")
            assert [(each.partition_path, each.ordering_value) for each in deletes.targets] == [
                ("record_index", 0)
            ]
            found.update(dict.fromkeys(deletes.keys.to_pylist()))
        else:
            assert block.block_type is BlockType.HFILE_DATA
            reader = HFileReader.from_bytes(block.content, "x")
            content = reader.read_all()
            entries = decode_entries(StoredEntries(content.keys, content.values, reader.schema, "x"))
            ids = entries.location_ids.tolist()
            found.update(
                zip(entries.keys.to_pylist(), [entries.locations[each] for each in ids], strict=True)
            )
    return found


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=10), st.none() | LOCATIONS, min_size=1, max_size=20), st.randoms())
def test_a_log_file_holds_upserts_and_deletes_whatever_their_order(
    wanted: dict[str, RecordLocation | None], random: object
) -> None:
    keys = list(wanted)
    locations = [location for location in wanted.values() if location is not None]
    ids = [-1 if wanted[key] is None else locations.index(wanted[key]) for key in keys]  # type: ignore[arg-type]
    entries = RecordIndexEntries(
        pa.array(keys), np.array(ids, np.int32), locations, np.zeros(len(keys), np.int64)
    )
    data = write_record_index_log(entries, INSTANT)
    assert log_content(data) == wanted
    shuffled = np.array(random.sample(range(len(keys)), len(keys)), np.int64)  # type: ignore[attr-defined]
    assert write_record_index_log(entries.take(shuffled), INSTANT) == data


def test_a_key_that_is_there_twice_is_refused() -> None:
    location = RecordLocation("p", "f")
    doubled = RecordIndexEntries.concat([one(location), RecordIndexEntries.of_deletes(pa.array(["k"]))])
    with pytest.raises(HudiFormatError, match="'k' has two"):
        write_record_index_log(doubled, INSTANT)


def test_a_log_file_without_entries_is_refused() -> None:
    with pytest.raises(HudiFormatError):
        write_record_index_log(RecordIndexEntries.none(), INSTANT)


def test_the_newest_entry_of_a_key_wins() -> None:
    old, new = RecordLocation("p", "old"), RecordLocation("p", "new")
    merged = RecordIndexEntries.newest_wins(
        [one(old, 1), RecordIndexEntries.of_deletes(pa.array(["k", "gone"])), one(new, 2)]
    )
    assert merged.keys.to_pylist() == ["gone", "k"]
    assert [merged.location_ids[0], merged.locations[merged.location_ids[1]]] == [-1, new]
    assert merged.instant_ms.tolist() == [0, 2]
    assert merged.live().keys.to_pylist() == ["k"]


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(HudiFormatError):
        RecordIndexEntries(pa.array(["a"]), np.zeros(2, np.int32), [], np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("record-index-0003-0", RecordIndexFileId(None, ShardId(3))),
        ("record-index--0000-0", RecordIndexFileId("", ShardId(0))),
        ("record-index-us%2Fca-0001-0", RecordIndexFileId("us/ca", ShardId(1))),
        ("record-index-b%2Dx%5Fy-0000-0", RecordIndexFileId("b-x_y", ShardId(0))),
    ],
)
def test_file_ids_of_shards(text: str, parts: RecordIndexFileId) -> None:
    assert parse_record_index_file_id(text) == parts
    assert record_index_file_id(parts.shard, parts.partition_path) == text


@given(st.text(st.characters(exclude_characters=".", exclude_categories=["Cs"]), max_size=20))
def test_any_partition_path_without_a_dot_comes_back_from_a_file_id(path: str) -> None:
    assert parse_record_index_file_id(record_index_file_id(ShardId(1), path)).partition_path == path


def test_what_hudi_could_not_read_is_refused() -> None:
    with pytest.raises(UnsupportedTableError):
        escape_partition("v1.0")
    with pytest.raises(CorruptFileError):
        parse_record_index_file_id("files-0000-0")


def test_the_schema_for_commits_lacks_the_meta_fields() -> None:
    whole = [field["name"] for field in json.loads(metadata_record_schema())["fields"]]
    assert [field["name"] for field in json.loads(commit_schema())["fields"]] == whole[5:]
