"""Writes an HFile from sorted columns, in pieces: the content of a log file's HFile block, or a base file of
the metadata table.

Invariants: keys strictly ascend in the order of their UTF-8 bytes (so no key is in two blocks, and none
occurs twice); data blocks hold at most 64 KiB of entries, unless a single entry is larger; equal input gives
equal bytes. `HFileWriter` holds two blocks of entries at most, and the root index: its memory does not
depend on the number of entries, only on that of blocks.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping
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
    StoredBlock,
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


class HFileWriter:
    """Writes one HFile through `write`, which takes the file's bytes in order; `finish` ends it.

    `even`: the last entries before a copied block, or at the end, are divided into two blocks of equal size
    if one does not hold them. Otherwise each block is filled, and a file that is written anew with a few
    entries more again and again would get ever smaller blocks.
    """

    def __init__(
        self,
        write: Callable[[bytes | memoryview], object],
        schema: str,
        options: HFileOptions = DEFAULT_OPTIONS,
        file_info: Mapping[str, bytes] | None = None,
        *,
        even: bool = False,
    ) -> None:
        """`schema` is the Avro schema of the values; it is stored in the file info, like the pairs of
        `file_info`.
        """
        self._write, self._schema, self._options = write, schema, options
        self._file_info, self._even = file_info or {}, even
        self._index: list[bytes] = []
        self._offset, self._last_block = 0, -1
        self._payload = self._entries = self._key_bytes = self._value_bytes = 0
        self._pending: list[tuple[pa.Array, BinaryColumn]] = []
        self._pending_bytes = 0
        self._last_key: bytes | None = None
        self._last_key_of_copy: Callable[[], bytes] | None = None

    @property
    def appended(self) -> int:
        """Number of entries that came by `append`."""
        return self._entries

    @property
    def pending_bytes(self) -> int:
        """Bytes of entries that are not in a block yet."""
        return self._pending_bytes

    def append(self, keys: pa.Array, values: pa.Array) -> None:
        """Adds entries behind those that are there: strings (or UTF-8 bytes) in strictly ascending byte
        order, and binary values, one per key.

        Raises HudiFormatError for keys that are out of order, repeated or too long, and from 2 GiB of file
        on.
        """
        keys = _checked_keys(keys, values)
        if not len(keys):
            return
        first = keys[0].as_py()
        if self._last_key is not None and self._last_key >= first:
            raise HudiFormatError(f"HFile keys must strictly ascend: {self._last_key!r} is before {first!r}")
        self._last_key, self._last_key_of_copy = keys[-1].as_py(), None
        entries = encode_entries(keys, values)
        self._entries += len(keys)
        self._key_bytes += int(BinaryColumn.from_arrow(keys).offsets[-1])
        self._value_bytes += int(BinaryColumn.from_arrow(values).offsets[-1])
        self._pending.append((keys, entries))
        self._pending_bytes += int(entries.offsets[-1])
        # Twice the limit is held back, so that the rest can be divided evenly.
        held = 2 * _block_bytes(self._options)
        if self._pending_bytes > held:
            self._cut(held)

    def copy(self, block: StoredBlock) -> None:
        """Adds a data block of another HFile as it is. How many entries the copied blocks hold together
        `finish` has to be told. Raises HudiFormatError as `append`.
        """
        self.flush()
        if self._last_key is not None and self._last_key >= block.first_key:
            raise HudiFormatError(
                f"HFile keys must strictly ascend: {self._last_key!r} is before {block.first_key!r}"
            )
        self._last_key, self._last_key_of_copy = block.first_key, block.last_key
        self._add_block(block.data, block.first_key, block.payload_bytes)

    def flush(self) -> None:
        """Ends the block that is being filled."""
        self._cut(0)

    def finish(self, copied_entries: int = 0) -> int:
        """Writes the rest of the file; returns its size in bytes. Raises HudiFormatError from 2 GiB on."""
        self.flush()
        load_on_open = self._offset
        options = self._options
        tail = [
            pack_block(kind, payload, options.codec, options.level, -1)
            for kind, payload in (
                (HFileBlockType.ROOT_INDEX, b"".join(self._index)),
                (HFileBlockType.ROOT_INDEX, b""),
                (HFileBlockType.FILE_INFO, self._info()),
            )
        ]
        trailer = Trailer(
            file_info_offset=load_on_open + len(tail[0]) + len(tail[1]),
            load_on_open_offset=load_on_open,
            uncompressed_bytes=self._payload,
            data_index_count=len(self._index),
            meta_index_count=0,
            entry_count=self._entries + copied_entries,
            index_levels=1,
            first_data_block_offset=0,
            last_data_block_offset=max(self._last_block, 0),
            codec=options.codec,
        )
        for part in (*tail, trailer.pack()):
            self._put(part)
        return self._offset

    def _cut(self, kept_bytes: int) -> None:
        """Writes blocks until at most `kept_bytes` of entries are left."""
        if self._pending_bytes <= kept_bytes:
            return
        limit = _block_bytes(self._options)
        keys, entries = self._joined()
        view, first, end = memoryview(entries.data.data), 0, int(entries.offsets[-1])
        while first < len(entries) and end - (start := int(entries.offsets[first])) > kept_bytes:
            rest = end - start
            size = -(-rest // 2) if self._even and limit < rest <= 2 * limit else limit
            # The block takes all entries that end within its limit: entries of 40 KiB at 0, 40 and 80 KiB
            # fill a block of 64 KiB with one each, entries of 30 KiB with two.
            last = int(np.searchsorted(entries.offsets, start + size, side="right")) - 1
            last = max(last, first + 1)
            payload = view[start : int(entries.offsets[last])]
            data = pack_block(
                HFileBlockType.DATA, payload, self._options.codec, self._options.level, self._last_block
            )
            self._add_block(data, keys[first].as_py(), len(payload))
            first = last
        start = int(entries.offsets[first])
        left = BinaryColumn(entries.data[start:].copy(), entries.offsets[first:] - start)
        self._pending = [(keys[first:], left)] if first < len(entries) else []
        self._pending_bytes = end - start

    def _joined(self) -> tuple[pa.Array, BinaryColumn]:
        if len(self._pending) == 1:
            return self._pending[0]
        keys = pa.concat_arrays([keys for keys, _ in self._pending])
        offsets, begin = [np.zeros(1, np.int64)], 0
        for _, entries in self._pending:
            offsets.append(entries.offsets[1:] + begin)
            begin += int(entries.offsets[-1])
        data = np.concatenate([entries.data for _, entries in self._pending])
        return keys, BinaryColumn(data, np.concatenate(offsets))

    def _add_block(self, data: bytes | memoryview, first_key: bytes, payload_bytes: int) -> None:
        key = struct.pack(">h", len(first_key)) + first_key
        self._index.append(struct.pack(">qi", self._offset, len(data)) + hadoop_vint(len(key)) + key)
        self._last_block = self._offset
        self._payload += payload_bytes
        self._put(data)

    def _put(self, data: bytes | memoryview) -> None:
        self._offset += len(data)
        if self._offset > FILE_BYTES_MAX:
            raise HudiFormatError(
                f"an HFile of {self._offset} bytes cannot be read by Hudi: the limit is 2 GiB"
            )
        self._write(data)

    def _info(self) -> bytes:
        last = self._last_key if self._last_key_of_copy is None else self._last_key_of_copy()
        count = max(self._entries, 1)
        pairs = {
            "schema": self._schema.encode(),
            "hfile.LASTKEY": b"" if last is None else struct.pack(">h", len(last)) + last,
            "KEY_VALUE_VERSION": struct.pack(">i", 1),
            "MAX_MEMSTORE_TS_KEY": bytes(8),
            "hfile.AVG_KEY_LEN": struct.pack(">i", self._key_bytes // count),
            "hfile.AVG_VALUE_LEN": struct.pack(">i", self._value_bytes // count),
            "hfile.CREATE_TIME_TS": struct.pack(">q", self._options.create_time_ms),
        }
        message = b"".join(
            protobuf_field(1, protobuf_field(1, name.encode()) + protobuf_field(2, value))
            for name, value in itertools.chain(pairs.items(), self._file_info.items())
        )
        return b"PBUF" + delimited(message)


def write_hfile(
    keys: pa.Array,
    values: pa.Array,
    schema: str,
    options: HFileOptions = DEFAULT_OPTIONS,
    file_info: Mapping[str, bytes] | None = None,
) -> bytes:
    """The bytes of an HFile with these entries; parameters and errors are those of `HFileWriter`."""
    parts: list[bytes | memoryview] = []
    writer = HFileWriter(parts.append, schema, options, file_info)
    writer.append(keys, values)
    writer.finish()
    return b"".join(parts)


def _block_bytes(options: HFileOptions) -> int:
    return options.data_block_bytes


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
