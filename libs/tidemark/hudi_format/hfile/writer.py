"""Writes a whole HFile from sorted columns: the content of a log file's HFile block, or a base file of the
metadata table.

Invariants: keys strictly ascend in the order of their UTF-8 bytes (so no key is in two blocks, and none
occurs twice); data blocks hold at most 64 KiB of entries, unless a single entry is larger; equal input gives
equal bytes.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.columnar import BinaryColumn
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.hfile.key_values import encode_entries
from tidemark.hudi_format.hfile.layout import (
    DATA_BLOCK_BYTES_MAX,
    FILE_BYTES_MAX,
    KEY_BYTES_MAX,
    Codec,
    HFileBlockType,
    Trailer,
    delimited,
    hadoop_vint,
    pack_block,
    protobuf_field,
)


@dataclass(frozen=True, slots=True)
class HFileOptions:
    """How to write: codec, gzip level (1 is the fastest), largest data block in bytes, and creation time.

    The file states `create_time_ms` (milliseconds since the Unix epoch) for information only. Derive it from
    the instant, so that a repeated write gives the same bytes.
    """

    codec: Codec = Codec.GZ
    level: int = 1
    data_block_bytes: int = DATA_BLOCK_BYTES_MAX
    create_time_ms: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.data_block_bytes <= DATA_BLOCK_BYTES_MAX:
            raise HudiFormatError(
                f"data_block_bytes is {self.data_block_bytes}: must be 1 to {DATA_BLOCK_BYTES_MAX}, "
                "because Hudi's reader loses the last records of larger blocks"
            )


DEFAULT_OPTIONS: Final = HFileOptions()


@dataclass(frozen=True, slots=True)
class _Block:
    offset: int
    data: bytes
    first_key: bytes


def write_hfile(
    keys: pa.Array,
    values: pa.Array,
    schema: str,
    options: HFileOptions = DEFAULT_OPTIONS,
    file_info: Mapping[str, bytes] | None = None,
) -> bytes:
    """The bytes of an HFile with these entries.

    `keys` are strings (or UTF-8 bytes) in strictly ascending byte order, `values` are binary, one per key.
    `schema` is the Avro schema of the values; it is stored in the file info, like the pairs of `file_info`.
    Raises HudiFormatError for keys that are out of order, repeated or too long, and for a file of 2 GiB or
    more.
    """
    keys = _checked_keys(keys, values)
    entries = encode_entries(keys, values)
    blocks = list(_data_blocks(keys, entries, options))
    parts = [block.data for block in blocks]
    load_on_open = blocks[-1].offset + len(blocks[-1].data) if blocks else 0

    index = b"".join(_index_entry(block) for block in blocks)
    info = _file_info(keys, values, schema, options, file_info or {})
    tail = [
        pack_block(kind, payload, options.codec, options.level, -1)
        for kind, payload in (
            (HFileBlockType.ROOT_INDEX, index),
            (HFileBlockType.ROOT_INDEX, b""),
            (HFileBlockType.FILE_INFO, info),
        )
    ]
    trailer = Trailer(
        file_info_offset=load_on_open + len(tail[0]) + len(tail[1]),
        load_on_open_offset=load_on_open,
        uncompressed_bytes=int(entries.offsets[-1]),
        data_index_count=len(blocks),
        meta_index_count=0,
        entry_count=len(keys),
        index_levels=1,
        first_data_block_offset=0,
        last_data_block_offset=blocks[-1].offset if blocks else 0,
        codec=options.codec,
    )
    data = b"".join([*parts, *tail, trailer.pack()])
    if len(data) > FILE_BYTES_MAX:
        raise HudiFormatError(f"an HFile of {len(data)} bytes cannot be read by Hudi: the limit is 2 GiB")
    return data


def _checked_keys(keys: pa.Array, values: pa.Array) -> pa.Array:
    if len(keys) != len(values):
        raise HudiFormatError(f"{len(keys)} keys but {len(values)} values")
    keys = keys.cast(pa.large_binary())
    if len(keys) and pc.max(pc.binary_length(keys)).as_py() > KEY_BYTES_MAX:
        raise HudiFormatError(f"a key is longer than {KEY_BYTES_MAX} bytes: an HFile cannot hold it")
    ascending = pc.less(keys[:-1], keys[1:]) if len(keys) > 1 else None
    if ascending is not None and not pc.all(ascending).as_py():
        at = pc.index(ascending, False).as_py()
        raise HudiFormatError(
            f"HFile keys must strictly ascend: {keys[at].as_py()!r} is before {keys[at + 1].as_py()!r}"
        )
    return keys


def _data_blocks(keys: pa.Array, entries: BinaryColumn, options: HFileOptions) -> Iterator[_Block]:
    view = memoryview(entries.data.data)
    first, offset, previous = 0, 0, -1
    while first < len(entries):
        start = int(entries.offsets[first])
        # The block takes all entries that end within its limit: entries of 40 KiB at 0, 40 and 80 KiB fill a
        # block of 64 KiB with one each, entries of 30 KiB with two.
        last = int(np.searchsorted(entries.offsets, start + options.data_block_bytes, side="right")) - 1
        last = max(last, first + 1)
        payload = view[start : int(entries.offsets[last])]
        block = _Block(
            offset,
            pack_block(HFileBlockType.DATA, payload, options.codec, options.level, previous),
            keys[first].as_py(),
        )
        yield block
        first, previous, offset = last, offset, offset + len(block.data)


def _index_entry(block: _Block) -> bytes:
    key = struct.pack(">h", len(block.first_key)) + block.first_key
    return struct.pack(">qi", block.offset, len(block.data)) + hadoop_vint(len(key)) + key


def _file_info(
    keys: pa.Array, values: pa.Array, schema: str, options: HFileOptions, more: Mapping[str, bytes]
) -> bytes:
    count = max(len(keys), 1)
    last_key = keys[-1].as_py() if len(keys) else None
    pairs = {
        "schema": schema.encode(),
        "hfile.LASTKEY": b"" if last_key is None else struct.pack(">h", len(last_key)) + last_key,
        "KEY_VALUE_VERSION": struct.pack(">i", 1),
        "MAX_MEMSTORE_TS_KEY": bytes(8),
        "hfile.AVG_KEY_LEN": struct.pack(">i", int(BinaryColumn.from_arrow(keys).offsets[-1]) // count),
        "hfile.AVG_VALUE_LEN": struct.pack(">i", int(BinaryColumn.from_arrow(values).offsets[-1]) // count),
        "hfile.CREATE_TIME_TS": struct.pack(">q", options.create_time_ms),
    }
    message = b"".join(
        protobuf_field(1, protobuf_field(1, name.encode()) + protobuf_field(2, value))
        for name, value in itertools.chain(pairs.items(), more.items())
    )
    return b"PBUF" + delimited(message)
