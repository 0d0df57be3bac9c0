"""The layout of HFile version 3 as Hudi 1.2.0's native reader and writer have it: magics, block headers,
trailer, and small encodings.

File order: data blocks, meta blocks, the "load-on-open" section (root data index, root meta index, file info)
and a trailer of 4096 bytes. All integers are big-endian (METADATA_TABLE.md, section 2).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.hfile.inflating import gunzip

TRAILER_BYTES: Final = 4096
HEADER_BYTES: Final = 33
# A block's header may not claim more than this. Blocks that Hudi writes have 64 KiB and at most one entry
# more.
BLOCK_BYTES_MAX: Final = 128 << 20
BYTES_PER_CHECKSUM: Final = 16384
# Hudi 1.2.0's own reader subtracts the checksum area (4 bytes for each 16 KiB on disk) from the uncompressed
# size, so it loses the last records of larger blocks. With 64 KiB the area has at most 20 bytes, fewer than
# the smallest entry.
DATA_BLOCK_BYTES_MAX: Final = 64 * 1024
KEY_BYTES_MAX: Final = 32767
FILE_BYTES_MAX: Final = 2**31 - 1
COMPARATOR: Final = "org.apache.hudi.io.storage.HoodieHBaseKVComparator"
TRAILER_MAGIC: Final = b'TRABLK"$'
_MAJOR_VERSION: Final = 3
# The trailer's protobuf field numbers; 11 is the comparator, 12 the codec.
_TRAILER_FIELDS: Final = {
    1: "file_info_offset",
    2: "load_on_open_offset",
    3: "uncompressed_bytes",
    5: "data_index_count",
    6: "meta_index_count",
    7: "entry_count",
    8: "index_levels",
    9: "first_data_block_offset",
    10: "last_data_block_offset",
}
_HEADER: Final = struct.Struct(">8siiqBii")


class HFileBlockType(Enum):
    """The magic of each kind of block."""

    DATA = b"DATABLK*"
    META = b"METABLKc"
    ROOT_INDEX = b"IDXROOT2"
    LEAF_INDEX = b"IDXLEAF2"
    INTERMEDIATE_INDEX = b"IDXINTE2"
    FILE_INFO = b"FILEINF2"


class Codec(IntEnum):
    """The compression of all blocks of a file, by its number in the trailer. Hudi's native reader knows only
    these two.
    """

    GZ = 1
    NONE = 2


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The sizes of one block in bytes: on disk without the header (checksums included), raw and
    compressed payload.
    """

    block_type: HFileBlockType
    on_disk_size: int
    uncompressed_size: int
    compressed_size: int

    @classmethod
    def unpack(cls, data: bytes, name: str, offset: int) -> BlockHeader:
        """Parses the header at the start of `data`, which is at `offset` of the file `name`.

        Raises CorruptFileError.
        """
        if len(data) < HEADER_BYTES:
            raise CorruptFileError(f"{name}: block header at offset {offset} is cut off")
        magic, on_disk, uncompressed, _, _, _, on_disk_data = _HEADER.unpack_from(data)
        try:
            block_type = HFileBlockType(magic)
        except ValueError:
            raise CorruptFileError(f"{name}: no HFile block at offset {offset}: magic {magic!r}") from None
        compressed = on_disk_data - HEADER_BYTES
        if not (0 <= compressed <= on_disk and uncompressed >= 0):
            raise CorruptFileError(
                f"{name}: block at offset {offset} has impossible sizes "
                f"({on_disk}, {uncompressed}, {on_disk_data})"
            )
        return cls(block_type, on_disk, uncompressed, compressed)


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A data block as it lies in another HFile of the same codec: all its bytes, and what the new file has to
    know of it.

    `payload_bytes` is the raw size of its entries, `checksum_bytes` the size of the checksum area behind
    them. `first_key` is the one in that file's index. `last_key` is called only if the block is the last one
    of the new file.
    """

    data: bytes | memoryview
    first_key: bytes
    payload_bytes: int
    checksum_bytes: int
    last_key: Callable[[], bytes]


def pack_block(
    block_type: HFileBlockType, payload: bytes | memoryview, codec: Codec, level: int, previous: int
) -> bytes:
    """The bytes of one block: header, payload compressed with the codec, and zeroes in place of unused
    checksums.

    `previous`: offset of the block of the same kind before it, -1 for none.
    """
    compressed = gzip_member(payload, level) if codec is Codec.GZ else bytes(payload)
    with_header = HEADER_BYTES + len(compressed)
    checksums = bytes(4 * -(-with_header // BYTES_PER_CHECKSUM))
    header = _HEADER.pack(
        block_type.value,
        len(compressed) + len(checksums),
        len(payload),
        previous,
        0,
        BYTES_PER_CHECKSUM,
        with_header,
    )
    return header + compressed + checksums


def gzip_member(payload: bytes | memoryview, level: int) -> bytes:
    """`payload` as one gzip member without a time stamp, so that equal input gives equal bytes."""
    compressor = zlib.compressobj(level, zlib.DEFLATED, 31)
    return compressor.compress(payload) + compressor.flush()


def unpack_payload(data: bytes, header: BlockHeader, codec: Codec, name: str, offset: int) -> bytes:
    """The raw payload of the block whose bytes, from the header on, are `data`.

    Raises CorruptFileError when it is cut off, does not decompress, or has not the size that the header
    states.
    """
    if header.uncompressed_size > BLOCK_BYTES_MAX:
        raise CorruptFileError(
            f"{name}: block at offset {offset} would take {header.uncompressed_size} bytes; no block of a "
            f"metadata table is larger than {BLOCK_BYTES_MAX}"
        )
    stored = data[HEADER_BYTES : HEADER_BYTES + header.compressed_size]
    if len(stored) < header.compressed_size:
        raise CorruptFileError(f"{name}: block at offset {offset} is cut off")
    payload = stored if codec is Codec.NONE else gunzip(stored, header.uncompressed_size, name, offset)
    if len(payload) != header.uncompressed_size:
        raise CorruptFileError(
            f"{name}: block at offset {offset} holds {len(payload)} bytes, "
            f"its header says {header.uncompressed_size}"
        )
    return payload


def hadoop_vint(value: int) -> bytes:
    """A number that is not negative as Hadoop's WritableUtils variable-length integer."""
    if value <= 127:
        return bytes([value])
    raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([256 - 112 - len(raw)]) + raw


def read_hadoop_vint(data: bytes, position: int) -> tuple[int, int]:
    """A Hadoop variable-length integer and the position after it."""
    first = data[position] - 256 if data[position] > 127 else data[position]
    if first >= -112:
        return first, position + 1
    negative = first < -120
    length = -120 - first if negative else -112 - first
    value = int.from_bytes(data[position + 1 : position + 1 + length], "big")
    return (~value if negative else value), position + 1 + length


def protobuf_varint(value: int) -> bytes:
    """A number as protobuf varint (unsigned, least significant group first)."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def protobuf_field(number: int, value: int | bytes) -> bytes:
    """One field of a protobuf message: a varint or a length-delimited byte string."""
    if isinstance(value, int):
        return protobuf_varint(number << 3) + protobuf_varint(value)
    return protobuf_varint(number << 3 | 2) + protobuf_varint(len(value)) + value


def delimited(message: bytes) -> bytes:
    """A protobuf message, preceded by its length."""
    return protobuf_varint(len(message)) + message


def read_protobuf_varint(data: bytes, position: int) -> tuple[int, int]:
    """A protobuf varint and the position after it. Raises IndexError at the end of the data."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise IndexError("varint longer than 64 bits")


def read_protobuf_fields(message: bytes) -> list[tuple[int, int | bytes]]:
    """All fields (number, value) of a protobuf message that has only varints and byte strings.

    Raises IndexError when it is damaged.
    """
    fields: list[tuple[int, int | bytes]] = []
    position = 0
    while position < len(message):
        tag, position = read_protobuf_varint(message, position)
        number, position = read_protobuf_varint(message, position)
        if tag & 7 == 0:
            fields.append((tag >> 3, number))
        elif tag & 7 == 2:
            if position + number > len(message):
                raise IndexError("byte string beyond the end of the message")
            fields.append((tag >> 3, message[position : position + number]))
            position += number
        else:
            raise IndexError(f"unknown protobuf wire type {tag & 7}")
    return fields


@dataclass(frozen=True, slots=True)
class Trailer:
    """The fields of the trailer, the last 4096 bytes. Offsets count from the start of the HFile; sizes
    are bytes.
    """

    file_info_offset: int
    load_on_open_offset: int
    uncompressed_bytes: int
    data_index_count: int
    meta_index_count: int
    entry_count: int
    index_levels: int
    first_data_block_offset: int
    last_data_block_offset: int
    codec: Codec

    def pack(self) -> bytes:
        """The trailer's 4096 bytes."""
        message = b"".join(
            protobuf_field(number, getattr(self, name)) for number, name in _TRAILER_FIELDS.items()
        )
        message += protobuf_field(11, COMPARATOR.encode()) + protobuf_field(12, int(self.codec))
        content = TRAILER_MAGIC + delimited(message)
        return content + bytes(TRAILER_BYTES - 4 - len(content)) + _MAJOR_VERSION.to_bytes(4, "big")

    @classmethod
    def unpack(cls, data: bytes, name: str, offset: int) -> Trailer:
        """Parses the trailer, which is at `offset` of the file `name`. Raises CorruptFileError."""
        if len(data) != TRAILER_BYTES or not data.startswith(TRAILER_MAGIC):
            raise CorruptFileError(
                f"{name}: no HFile trailer at offset {offset}: the file is cut off or no HFile"
            )
        if int.from_bytes(data[-3:], "big") != _MAJOR_VERSION:
            raise CorruptFileError(
                f"{name}: HFile version {data[-4:]!r} at offset {offset + TRAILER_BYTES - 4}, not 3"
            )
        try:
            size, position = read_protobuf_varint(data, len(TRAILER_MAGIC))
            fields = dict(read_protobuf_fields(data[position : position + size]))
            codec = Codec(int(fields.get(12, Codec.NONE)))
            numbers = {name: int(fields.get(number, 0)) for number, name in _TRAILER_FIELDS.items()}
        except (IndexError, ValueError, TypeError) as error:
            raise CorruptFileError(
                f"{name}: the HFile trailer at offset {offset} is not readable: {error}"
            ) from error
        return cls(codec=codec, **numbers)
