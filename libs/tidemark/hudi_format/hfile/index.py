"""Parses the block indexes of an HFile: the root index, and the leaf and intermediate indexes of files with
several levels.

Hudi's own writer makes one level only; HBase's writer, which wrote older metadata tables, may make more.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.hfile.layout import read_hadoop_vint

_ENTRY = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A block's offset, its size on disk with header and checksums, and a key that is at most its first
    key.
    """

    offset: int
    size: int
    key: bytes


def read_root_index(payload: bytes, count: int, name: str, offset: int) -> list[IndexEntry]:
    """The `count` entries of a root data index; `count` is in the trailer. Raises CorruptFileError."""
    entries: list[IndexEntry] = []
    position = 0
    try:
        for _ in range(count):
            block_offset, size = _ENTRY.unpack_from(payload, position)
            length, position = read_hadoop_vint(payload, position + _ENTRY.size)
            entries.append(IndexEntry(block_offset, size, _row_of(payload[position : position + length])))
            position += length
        if position > len(payload):
            raise IndexError(f"entry ends at byte {position} of {len(payload)}")
    except (struct.error, IndexError) as error:
        raise CorruptFileError(f"{name}: the index at offset {offset} is not readable: {error}") from error
    return entries


def read_non_root_index(payload: bytes, name: str, offset: int) -> list[IndexEntry]:
    """The entries of a leaf or intermediate index: count, count + 1 relative positions, then the entries.

    Raises CorruptFileError.
    """
    try:
        (count,) = struct.unpack_from(">i", payload)
        if not 0 <= count <= len(payload) // _ENTRY.size:
            raise IndexError(f"it claims {count} entries in {len(payload)} bytes")
        positions = struct.unpack_from(f">{count + 1}i", payload, 4)
        first = 4 + 4 * (count + 1)
        entries: list[IndexEntry] = []
        for begin, end in itertools.pairwise(positions):
            block_offset, size = _ENTRY.unpack_from(payload, first + begin)
            entries.append(
                IndexEntry(block_offset, size, _row_of(payload[first + begin + _ENTRY.size : first + end]))
            )
        return entries
    except (struct.error, IndexError) as error:
        raise CorruptFileError(f"{name}: the index at offset {offset} is not readable: {error}") from error


def check_ranges(entries: Sequence[IndexEntry], end: int, name: str) -> None:
    """Raises CorruptFileError unless the blocks follow each other and end before byte `end`.

    Without this check an index that names one block many times would turn a small file into a huge result.
    """
    position = 0
    for entry in entries:
        if entry.offset < position or entry.size <= 0:
            raise CorruptFileError(
                f"{name}: the index has a block of {entry.size} bytes at {entry.offset}, but the block "
                f"before it ends at {position}"
            )
        position = entry.offset + entry.size
    if position > end:
        raise CorruptFileError(f"{name}: the index has blocks up to byte {position}, the data ends at {end}")


def _row_of(key: bytes) -> bytes:
    """The record key in an index key, where family, time stamp and type may follow it."""
    (length,) = struct.unpack_from(">h", key)
    if length < 0 or 2 + length > len(key):
        raise IndexError(f"key of {length} bytes in {len(key) - 2}")
    return key[2 : 2 + length]
