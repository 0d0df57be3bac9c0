"""What the largest records take of a process's memory on their way (`python -m` this module).

``python -m tests.unit.index_assigner.largest_records FORMAT`` takes records of `RECORD_BYTES`, whose values
are many and small, from their bytes to a base file: decoded and keyed, published, read again and written. It
prints one JSON document: by case the most memory that was taken beyond what the process had before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from epoch_protocol.batches import decode_batch
from hudi_format.file_group.base_file import attach_meta_columns, write_base_file
from hudi_format.keys import KeyGenerator
from hudi_format.schema import TableSchema
from index_assigner.formats.avro_keys import AvroKeys
from index_assigner.formats.avro_rows import column_defaults
from index_assigner.formats.decode_avro import AvroDecoder
from index_assigner.formats.decoder import RecordDecoder, RowTarget
from index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from index_assigner.shuffle.refusals import Reason
from index_assigner.shuffle.shuffle_batch import encode_lanes
from stream_runtime.clock import ManualClock
from stream_runtime.config.model import UnknownFields
from stream_runtime.kafka.ports import Message
from tests.unit.index_assigner.avro_world import DictRegistry

RECORD_BYTES: Final = 4 << 20
"""`limits.record_bytes`, where nothing else is configured."""
BATCH_BYTES: Final = 1 << 20
MESSAGE_BYTES: Final = 16 << 20
MANY: Final = 4
"""As many as a transaction takes (`limits.transaction_bytes`)."""
_KINDS: Final = ("long", "string", "double", "boolean", "int", "float", "bytes", "string")
_LINE: Final = {
    "type": "record",
    "name": "line",
    "fields": [{"name": f"f{at}", "type": ["null", kind], "default": None} for at, kind in enumerate(_KINDS)],
}
_AVRO: Final = {
    "type": "record",
    "name": "rows",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "lists", "type": {"type": "array", "items": {"type": "array", "items": "long"}}},
        {"name": "lines", "type": {"type": "array", "items": _LINE}},
    ],
}
SCHEMA: Final = TableSchema.from_avro(json.dumps(_AVRO))
GENERATOR: Final = KeyGenerator.for_table(SCHEMA, ["id"], [])


def json_record(key: str, lists: int, lines: int) -> bytes:
    return b'{"id":"%s","lists":[%s],"lines":[%s]}' % (
        key.encode(),
        b",".join([b"[]"] * lists),
        b",".join([b"{}"] * lines),
    )


def avro_record(key: str, lists: int, lines: int) -> bytes:
    def array(item: bytes, count: int) -> bytes:
        return (_long(count) + item * count if count else b"") + b"\0"

    head = b"\0\0\0\0\7" + _long(len(key)) + key.encode()
    return head + array(b"\0", lists) + array(b"\0" * len(_KINDS), lines)


def _long(number: int) -> bytes:
    number, out = number << 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _keyer(format_: str) -> RecordKeyer:
    clock = ManualClock()
    decoder: RecordDecoder | None = None
    if format_ == "avro":
        registry, target = DictRegistry(), RowTarget.of(SCHEMA, None, UnknownFields.DROP)
        registry.register(7, _AVRO)
        defaults = column_defaults(json.dumps(_AVRO), target.columns)
        decoder = AvroDecoder(target, defaults, AvroKeys(GENERATOR, target, registry, clock), registry, clock)
    return RecordKeyer(RecordRules(SCHEMA, GENERATOR, None, 4, 1, RECORD_BYTES), decoder)


def _cases(format_: str) -> Iterator[tuple[str, list[bytes]]]:
    make, item = {"json": (json_record, (3, 3)), "avro": (avro_record, (1, len(_KINDS)))}[format_]
    room = RECORD_BYTES - 100
    lists, lines = room // item[0], room // item[1]
    yield "one of arrays", [make("a", lists, 0)]
    yield "one of records", [make("a", 0, lines)]
    yield f"{MANY} of records", [make(f"k{at}", 0, lines) for at in range(MANY)]


def _taken(keyer: RecordKeyer, values: list[bytes]) -> None:
    messages = [Message("in", 0, at, None, value) for at, value in enumerate(values)]
    keyed = keyer.key_records(messages)
    assert not keyed.refused, keyed.refused[0]
    assert keyed.rows.num_rows == len(values)
    encoded = encode_lanes(keyed, BATCH_BYTES, MESSAGE_BYTES)
    assert {each.reason for each in encoded.refused} <= {Reason.RECORD_TOO_LARGE}
    del keyed, messages
    for each in encoded.batches:
        rows = pa.Table.from_batches([decode_batch(each.value)])
        keys = rows.column("_tm_key").combine_chunks()
        user = rows.select(SCHEMA.arrow.names)
        name = "f-0_0-0-0_20240101000000000.parquet"
        write_base_file(attach_meta_columns(user, keys, "", "20240101000000000", 0, name, 0), SCHEMA)


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    """Prints the memory of each case."""
    format_ = sys.argv[1]
    keyer = _keyer(format_)
    make: Callable[..., bytes] = json_record if format_ == "json" else avro_record
    _taken(keyer, [make("a", 2, 2)])
    before = _peak_bytes()
    told: dict[str, Any] = {}
    for name, values in _cases(format_):
        size = sum(map(len, values))
        Path("/proc/self/clear_refs").write_text("5")
        _taken(keyer, values)
        told[name] = _peak_bytes() - before - size
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
