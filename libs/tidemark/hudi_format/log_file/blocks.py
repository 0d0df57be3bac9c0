"""Reads and writes log files as sequences of blocks: framing, headers, detection of damage (FORMAT.md,
sections 5.2 and 5.3).

A block is `#HUDI#`, i64 size of what follows, i32 version 1, i32 type, headers, i64 content length, content,
footers, and the size again (+ 6) as a pointer back. All integers are big-endian. The type tells what the
content is: a whole HFile, a whole Parquet file, a delete list, or nothing for a command.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

import pyarrow as pa

from tidemark.hudi_format.errors import CorruptFileError

MAGIC: Final = b"#HUDI#"
FORMAT_VERSION: Final = 1
COMMAND_ROLLBACK: Final = "0"
_HEADERS_MAX: Final = 64
# Large enough for the headers of nearly every block, Avro schema included.
_HEAD_BYTES: Final = 16 << 10
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
# Magic, size, version and type are before the headers.
_HEADERS_AT: Final = len(MAGIC) + 8 + 8


class BlockType(IntEnum):
    """The kind of content of a block."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(IntEnum):
    """The keys of the entries in a block's header (and footer)."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block. `offset` is its first byte in the file. The content of a CORRUPT block is all unreadable
    bytes.
    """

    block_type: BlockType
    headers: Mapping[HeaderKey, str]
    content: memoryview
    offset: int

    @property
    def instant_time(self) -> str:
        """The instant that wrote the block; '' for a corrupt block."""
        return self.headers.get(HeaderKey.INSTANT_TIME, "")

    @property
    def schema(self) -> str:
        """The Avro schema of the content's records; '' when the block has none."""
        return self.headers.get(HeaderKey.SCHEMA, "")

    @property
    def compacted_block_times(self) -> tuple[str, ...]:
        """The instants whose blocks this block of a log compaction stands for; empty for an ordinary
        block.
        """
        times = self.headers.get(HeaderKey.COMPACTED_BLOCK_TIMES, "")
        return tuple(time for time in times.split(",") if time)

    @property
    def rolled_back_instant(self) -> str | None:
        """The instant that a rollback command undoes; None for every other block."""
        is_rollback = (
            self.block_type is BlockType.COMMAND
            and self.headers.get(HeaderKey.COMMAND_BLOCK_TYPE) == COMMAND_ROLLBACK
        )
        return self.headers.get(HeaderKey.TARGET_INSTANT_TIME) if is_rollback else None


def frame_block(
    block_type: BlockType, headers: Mapping[HeaderKey, str], content: bytes | bytearray | memoryview
) -> bytes:
    """The bytes of one block, with its headers in the given order. A log file is such blocks one after
    another.
    """
    header_parts = [_I32.pack(len(headers))]
    for key, value in headers.items():
        raw = value.encode()
        header_parts.append(_I32.pack(key) + _I32.pack(len(raw)) + raw)
    header = b"".join(header_parts)
    size = 4 + 4 + len(header) + 8 + len(content) + 4 + 8
    return b"".join(
        (
            MAGIC,
            _I64.pack(size),
            _I32.pack(FORMAT_VERSION),
            _I32.pack(block_type),
            header,
            _I64.pack(len(content)),
            content,
            _I32.pack(0),
            _I64.pack(size + len(MAGIC)),
        )
    )


def rollback_block(instant: str, target_instant: str) -> bytes:
    """A command block that undoes the blocks of `target_instant`.

    Every reader understands it, but only table versions before ours write it.
    """
    headers = {
        HeaderKey.INSTANT_TIME: instant,
        HeaderKey.TARGET_INSTANT_TIME: target_instant,
        HeaderKey.COMMAND_BLOCK_TYPE: COMMAND_ROLLBACK,
    }
    return frame_block(BlockType.COMMAND, headers, b"")


def read_blocks(data: bytes | memoryview, name: str, *, strict: bool = True) -> list[LogBlock]:
    """The blocks of a log file's bytes, in order; contents are views into `data`. Errors call the file
    `name`.

    A damaged block (cut off, or its two sizes differ) raises CorruptFileError with its offset: here files
    appear whole or not at all, so damage means loss. With `strict=False` it becomes a CORRUPT block that
    reaches to the next magic or the end of the file, as in Hudi's own reader on stores where a writer may die
    in the middle of a file.
    """
    view = memoryview(data)
    blocks: list[LogBlock] = []
    position = 0
    while position < len(view):
        try:
            block, position = _read_block(view, position)
        except (_DamagedError, struct.error, ValueError) as error:
            if strict:
                raise CorruptFileError(f"{name}: damaged log block at offset {position}: {error}") from error
            end = bytes(view).find(MAGIC, position + 1)
            end = len(view) if end < 0 else end
            block, position = LogBlock(BlockType.CORRUPT, {}, view[position:end], position), end
        blocks.append(block)
    return blocks


def scan_blocks(
    file: pa.NativeFile, name: str, wanted: Callable[[BlockType, Mapping[HeaderKey, str]], bool]
) -> Iterator[LogBlock]:
    """Yields the blocks of an open log file for which `wanted` is true, in order.

    Of all other blocks it reads little more than the headers. Raises CorruptFileError as `read_blocks`.
    """
    position, end = 0, file.size()
    while position < end:
        head = memoryview(file.read_at(min(_HEAD_BYTES, end - position), position))
        try:
            (size,) = _I64.unpack_from(head, len(MAGIC))
            length = len(MAGIC) + 8 + size
            if size < 0 or position + length > end:
                raise _DamagedError(f"its size {size} exceeds the file ({end - position} bytes are left)")
            if _head_wanted(head[:length], wanted):
                whole = head[:length] if length <= len(head) else file.read_at(length, position)
                block, _ = _read_block(memoryview(whole), 0)
                if wanted(block.block_type, block.headers):
                    yield replace(block, offset=position)
        except (_DamagedError, struct.error, ValueError) as error:
            raise CorruptFileError(f"{name}: damaged log block at offset {position}: {error}") from error
        position += length


def scan_heads(file: pa.NativeFile, name: str) -> list[LogBlock]:
    """All blocks of an open log file, in order, without their contents. Errors are those of `scan_blocks`."""
    position, end = 0, file.size()
    heads: list[LogBlock] = []
    while position < end:
        try:
            length = _length_at(file, position, end)
            head = memoryview(file.read_at(min(_HEAD_BYTES, length), position))
            kind = _kind_of(head)
            try:
                headers, _ = _read_headers(head, _HEADERS_AT, len(head))
            except (_DamagedError, struct.error):
                # The headers are longer than the head.
                headers = dict(_read_block(memoryview(file.read_at(length, position)), 0)[0].headers)
        except (_DamagedError, struct.error, ValueError) as error:
            raise CorruptFileError(f"{name}: damaged log block at offset {position}: {error}") from error
        heads.append(LogBlock(kind, headers, memoryview(b""), position))
        position += length
    return heads


def read_block_at(file: pa.NativeFile, name: str, offset: int) -> LogBlock:
    """The block of an open log file that begins at `offset`. Raises CorruptFileError."""
    try:
        length = _length_at(file, offset, file.size())
        block, _ = _read_block(memoryview(file.read_at(length, offset)), 0)
    except (_DamagedError, struct.error, ValueError) as error:
        raise CorruptFileError(f"{name}: damaged log block at offset {offset}: {error}") from error
    return replace(block, offset=offset)


def _length_at(file: pa.NativeFile, position: int, end: int) -> int:
    """The length of the block at `position`, magic and size included."""
    (size,) = _I64.unpack(file.read_at(8, position + len(MAGIC)))
    length: int = len(MAGIC) + 8 + size
    if size < 0 or position + length > end:
        raise _DamagedError(f"its size {size} exceeds the file ({end - position} bytes are left)")
    return length


def _head_wanted(head: memoryview, wanted: Callable[[BlockType, Mapping[HeaderKey, str]], bool]) -> bool:
    """Whether the block must be read whole: it is wanted, or its headers are longer than `head`."""
    kind = _kind_of(head)
    try:
        headers, _ = _read_headers(head, _HEADERS_AT, len(head))
    except (_DamagedError, struct.error):
        return True
    return wanted(kind, headers)


def _kind_of(head: memoryview) -> BlockType:
    if bytes(head[: len(MAGIC)]) != MAGIC:
        raise _DamagedError("the magic #HUDI# is missing")
    version, kind = struct.unpack_from(">ii", head, len(MAGIC) + 8)
    if version != FORMAT_VERSION:
        raise _DamagedError(f"log format version {version} is not {FORMAT_VERSION}")
    return BlockType(kind)


class _DamagedError(Exception):
    pass


def _read_block(view: memoryview, start: int) -> tuple[LogBlock, int]:
    if bytes(view[start : start + len(MAGIC)]) != MAGIC:
        raise _DamagedError("the magic #HUDI# is missing")
    (size,) = _I64.unpack_from(view, start + len(MAGIC))
    body = start + len(MAGIC) + 8
    end = body + size
    if not 32 <= size <= len(view) - body:
        raise _DamagedError(f"its size {size} exceeds the file ({len(view) - body} bytes are left)")
    (pointer,) = _I64.unpack_from(view, end - 8)
    if pointer - len(MAGIC) != size:
        raise _DamagedError(f"its sizes at both ends disagree: {size} and {pointer - len(MAGIC)}")
    version, kind = struct.unpack_from(">ii", view, body)
    if version != FORMAT_VERSION:
        raise _DamagedError(f"log format version {version} is not {FORMAT_VERSION}")
    headers, position = _read_headers(view, body + 8, end)
    (content_length,) = _I64.unpack_from(view, position)
    content_start = position + 8
    if not 0 <= content_length <= end - 12 - content_start:
        raise _DamagedError(f"its content of {content_length} bytes exceeds the block")
    content = view[content_start : content_start + content_length]
    return LogBlock(BlockType(kind), headers, content, start), end


def _read_headers(view: memoryview, position: int, end: int) -> tuple[dict[HeaderKey, str], int]:
    (count,) = _I32.unpack_from(view, position)
    if not 0 <= count <= _HEADERS_MAX:
        raise _DamagedError(f"it claims {count} headers")
    position += 4
    headers: dict[HeaderKey, str] = {}
    for _ in range(count):
        key, length = struct.unpack_from(">ii", view, position)
        position += 8
        if not 0 <= length <= end - position:
            raise _DamagedError(f"header {key} of {length} bytes exceeds the block")
        # Thousands of blocks repeat one schema.
        headers[HeaderKey(key)] = sys.intern(str(view[position : position + length], "utf-8"))
        position += length
    return headers, position
