"""The memory that records of the largest size take on their way has a bound, alone and many in a batch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from index_assigner.formats.decoder import DecodedRecords, Int64Array
from index_assigner.formats.plain_json import PlainJson
from index_assigner.shuffle.decode_json import JsonDecoder
from index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from stream_runtime.config.model import UnknownFields
from stream_runtime.kafka.ports import Message
from tests.unit.index_assigner.largest_records import GENERATOR, MANY, RECORD_BYTES, SCHEMA, json_record

# Measured: JSON 144, 198 and 598, Avro 440, 187 and 232; the rest is room for other allocators.
BOUNDS_MIB = {
    "json": {"one of arrays": 288, "one of records": 384, f"{MANY} of records": 832},
    "avro": {"one of arrays": 672, "one of records": 384, f"{MANY} of records": 448},
}


@pytest.mark.parametrize("format_", BOUNDS_MIB)
def test_records_of_the_largest_size_take_bounded_memory(format_: str) -> None:
    command = [sys.executable, "-m", "tests.unit.index_assigner.largest_records", format_]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=1_200)
    assert ended.returncode == 0, ended.stderr[-3_000:]
    told = {name: taken >> 20 for name, taken in json.loads(ended.stdout).items()}
    sys.stdout.write(f"{format_}: MiB {told}\n")
    bounds = BOUNDS_MIB[format_]
    assert told.keys() == bounds.keys()
    assert {name: taken for name, taken in told.items() if taken > bounds[name]} == {}


class Counting(PlainJson):
    """Counts the bytes of values that are decoded at a time."""

    def __init__(self) -> None:
        super().__init__(JsonDecoder(SCHEMA, None, UnknownFields.DROP), GENERATOR)
        self.decoded: list[int] = []

    def decode(self, messages: Sequence[Message], positions: Int64Array) -> DecodedRecords:
        self.decoded.append(sum(len(messages[i].value or b"") for i in positions))
        return super().decode(messages, positions)


@pytest.mark.parametrize("size", [RECORD_BYTES, RECORD_BYTES // 3, 100_000])
def test_no_more_is_decoded_at_a_time_than_one_record_may_have(size: int) -> None:
    values = [json_record(f"k{at}", 0, 0).ljust(size) for at in range(MANY * RECORD_BYTES // size)]
    decoder = Counting()
    keyer = RecordKeyer(RecordRules(SCHEMA, GENERATOR, None, 4, 1, RECORD_BYTES), decoder)
    keyed = keyer.key_records([Message("in", 0, at, None, value) for at, value in enumerate(values)])
    assert keyed.rows.num_rows == len(values)
    assert sum(decoder.decoded) == size * len(values)
    assert RECORD_BYTES - size < max(decoder.decoded) <= RECORD_BYTES
