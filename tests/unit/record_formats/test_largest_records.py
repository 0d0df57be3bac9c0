"""The memory that records of the largest size take on their way has a bound, alone and many in a batch: with
what an assigner takes by itself it is less than the container of `docker-compose.yml` has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.unit.index_assigner.largest_records import (
    FORMATS,
    GENERATOR,
    MANY,
    RECORD_BYTES,
    SCHEMA,
    Content,
    json_record,
)
from tidemark.config.model import UnknownFields
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.record_formats.decode_json import JsonDecoder
from tidemark.record_formats.decoder import DecodedRecords, Int64Array
from tidemark.record_formats.plain_json import PlainJson
from tidemark.stream_runtime.kafka.ports import Message

CONTAINER_MIB = 768
# Before the first record, without a Kafka client and gRPC. Measured: 143.
PROCESS_MIB = 190
# Of an assigner's Kafka client and gRPC, at most.
CLIENTS_MIB = 64
# Measured at most (docs/inputs.md, "Memory"): JSON 272, Protobuf 416, Avro 394. The rest is room for other
# allocators.
BOUND_MIB = 512


@pytest.mark.parametrize("format_", FORMATS)
def test_records_of_the_largest_size_take_bounded_memory(format_: str) -> None:
    assert PROCESS_MIB + CLIENTS_MIB + BOUND_MIB < CONTAINER_MIB
    command = [sys.executable, "-m", "tests.unit.index_assigner.largest_records", format_]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=1_800)
    assert ended.returncode == 0, ended.stderr[-3_000:]
    told = {name: (taken >> 20, rows) for name, (taken, rows) in json.loads(ended.stdout).items()}
    sys.stdout.write(f"{format_}: MiB and rows {told}\n")
    assert told.pop("before")[0] <= PROCESS_MIB
    assert {name: taken for name, (taken, _) in told.items() if taken > BOUND_MIB} == {}
    many = {name: rows for name, (_, rows) in told.items() if name.startswith(f"{MANY} of")}
    assert many
    assert set(many.values()) == {MANY}


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
    values = [json_record(f"k{at}", Content()).ljust(size) for at in range(MANY * RECORD_BYTES // size)]
    decoder = Counting()
    keyer = RecordKeyer(RecordRules(SCHEMA, GENERATOR, None, 4, 1, RECORD_BYTES), decoder)
    keyed = keyer.key_records([Message("in", 0, at, None, value) for at, value in enumerate(values)])
    assert keyed.rows.num_rows == len(values)
    assert sum(decoder.decoded) == size * len(values)
    assert RECORD_BYTES - size < max(decoder.decoded) <= RECORD_BYTES
