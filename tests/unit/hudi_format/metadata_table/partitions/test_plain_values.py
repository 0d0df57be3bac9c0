"""Values that are split into location and instant mean what Avro's own decoder says of them."""

from __future__ import annotations

import io
import json
import uuid
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark.hudi_format.metadata_table.partitions.plain_values import split_plain
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import decode_values, encode_values
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.model import RecordLocation
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.runs.block_values import BlockValues

LONGS = st.integers(-(2**63), 2**63 - 1)
NOW_MS = 1_760_000_000_000
SCHEMA = fastavro.parse_schema(json.loads(metadata_record_schema()))
Info = dict[str, Any]


def uuid_info(high: int, low: int, index: int, instant: int | None, partition: str = "p") -> Info:
    return {
        "partitionName": partition,
        "fileIdHighBits": high,
        "fileIdLowBits": low,
        "fileIndex": index,
        "fileId": "",
        "instantTime": instant,
        "fileIdEncoding": 0,
    }


def text_info(file_id: str, instant: int | None) -> Info:
    return {**uuid_info(-1, -1, -1, instant), "fileId": file_id, "fileIdEncoding": 1}


INSTANTS = st.one_of(
    st.none(),
    LONGS,
    st.integers(NOW_MS, NOW_MS + 3),
    st.integers(2**34 - 2, 2**34 + 2),
    st.integers(-(2**41), -(2**34)),
)
# Texts whose last bytes look like the branch and the varint of an instant are among them.
TEXTS = st.one_of(st.text(min_size=1, max_size=9), st.sampled_from(["f\x02é€", "f\x02€é", "\x02éé\x02€é"]))
INFOS = st.one_of(
    st.builds(uuid_info, LONGS, LONGS, st.integers(-1, 3), INSTANTS, st.text(max_size=3)),
    st.builds(uuid_info, st.just(5), st.just(7), st.just(0), INSTANTS),
    st.builds(text_info, TEXTS, INSTANTS),
)
RECORDS = st.tuples(INFOS, st.sampled_from([None, "a.hfile"]), st.sampled_from([None, 9]))


def stored(info: Info, file_name: str | None, position: int | None) -> bytes:
    details = {**info, "position": position}
    record = {"key": "", "type": 5, "_hoodie_file_name": file_name, "recordIndexMetadata": details}
    body = io.BytesIO()
    fastavro.schemaless_writer(body, SCHEMA, record)
    return body.getvalue()


def location_of(info: Info) -> RecordLocation:
    if info["fileIdEncoding"] == 1:
        return RecordLocation(info["partitionName"], info["fileId"])
    bits = (info["fileIdHighBits"] % 2**64) << 64 | info["fileIdLowBits"] % 2**64
    index = "" if info["fileIndex"] == -1 else f"-{info['fileIndex']}"
    return RecordLocation(info["partitionName"], f"{uuid.UUID(int=bits)}{index}")


@settings(deadline=None, max_examples=60)
@given(st.lists(RECORDS, max_size=12), st.integers(0, 3))
@example([(text_info("f\x02é€", None), None, None), (text_info("f\x02€é", None), None, None)], 0)
def test_split_values_are_what_each_record_says(
    records: list[tuple[Info, str | None, int | None]], deletes: int
) -> None:
    rows = [stored(*record) for record in records] + [b""] * deletes
    expected = [(location_of(info), info["instantTime"] or 0) for info, _, _ in records]
    live = len(records)
    ids, places, instants = decode_values(pa.array(rows, pa.binary()), "", "x")
    assert [(places[ids[at]], int(instants[at])) for at in range(live)] == expected
    assert ids[live:].tolist() == [-1] * deletes

    locations = Locations(8)
    cache = BlockValues(locations)
    for _ in range(2):
        of_process = cache.locations(pa.array(rows, pa.binary()), "", "x").tolist()
        paths, file_ids = locations.partition_paths, locations.file_ids
        named = [RecordLocation(paths[number], file_ids[number]) for number in of_process[:live]]
        assert named == [place for place, _ in expected]
        assert of_process[live:] == [-1] * deletes


def test_values_of_a_table_are_split_once_for_each_location() -> None:
    """50 instants over 3 locations are 150 distinct values, and 3 locations to parse."""
    groups = [RecordLocation("", f"{number:08d}-0000-4000-8000-000000000000-0") for number in range(3)]
    located = np.arange(300, dtype=np.int32) % 3
    instants = NOW_MS + np.arange(300) // 6 * 1_000
    plain = split_plain(encode_values(located, groups, instants))
    assert (len(plain.keys), plain.others.tolist()) == (3, [])
    assert plain.instant_ms.tolist() == instants.tolist()
