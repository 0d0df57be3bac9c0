"""Reads an HFile block by block, from a file in a storage or from bytes (the content of a log block).

Opening a file costs one read of its tail; the block index is parsed when it is first needed. A reader caches
no decoded blocks: that is the caller's decision. Anything that contradicts the format raises CorruptFileError
with the file and the offset; a file that is gone raises FileMissingError. A caller never gets "key not there"
for either of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.errors import CorruptFileError, damage_in
from tidemark.hudi_format.hfile.block_search import BlockSearch
from tidemark.hudi_format.hfile.index import IndexEntry, check_ranges, read_non_root_index, read_root_index
from tidemark.hudi_format.hfile.key_values import KeyValues, decode_blocks, decode_entries, find_values
from tidemark.hudi_format.hfile.layout import (
    HEADER_BYTES,
    TRAILER_BYTES,
    BlockHeader,
    Codec,
    HFileBlockType,
    StoredBlock,
    Trailer,
    read_protobuf_fields,
    read_protobuf_varint,
    unpack_payload,
)
from tidemark.hudi_format.hfile.sources import BytesSource, FileSource, Source
from tidemark.hudi_format.storage.base import Storage

_READ_AHEAD_BYTES = 8 * 1024 * 1024
_RUN_BYTES = 1024 * 1024
# Blocks that nobody asked for are read as well where they lie between others and are smaller than a further
# read costs.
_GAP_BYTES = 128 * 1024
# So many bytes are inflated by one thread at a time, and the next ones are read meanwhile: 16 blocks of
# 64 KiB, or one of 1 MiB, as Hudi writes them.
_INFLATED_AT_ONCE = 1024 * 1024
_AHEAD = 4
_INDEX_LEVELS_MAX = 8


@dataclass(frozen=True, slots=True)
class BlockRun:
    """The entries of some data blocks, in the order of `numbers`, which ascend.

    `ends`: how many entries there are up to the end of each block, so block `numbers[i]` has the entries from
    `ends[i - 1]` (0 for the first) to `ends[i]`.
    """

    numbers: Sequence[int]
    content: KeyValues
    ends: Sequence[int]


@dataclass(frozen=True, slots=True)
class FoundValues:
    """`values[i]` is the value of the key at `positions[i]` among those asked for; other keys are not in the
    file. `blocks_read`: so many blocks were read.
    """

    positions: npt.NDArray[np.int64]
    values: pa.BinaryArray
    blocks_read: int


class HFileReader:
    """Reads one HFile. `entry_count` and `codec` come from the trailer; blocks are numbered from 0 in key
    order.
    """

    def __init__(self, source: Source, name: str) -> None:
        self._source = source
        self.name = name
        offset = source.size - TRAILER_BYTES
        if offset < 0:
            raise CorruptFileError(
                f"{name}: {source.size} bytes are no HFile: its trailer alone has {TRAILER_BYTES}"
            )
        self._trailer = Trailer.unpack(source.read(offset, TRAILER_BYTES), name, offset)

    @classmethod
    def open(cls, storage: Storage, path: str) -> HFileReader:
        """Opens a file. Raises FileMissingError when it is gone, CorruptFileError when it is no HFile."""
        return cls(FileSource(storage, path), path)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, name: str) -> HFileReader:
        """Opens an HFile in memory; errors call it `name`. Raises CorruptFileError when it is no HFile."""
        return cls(BytesSource(data), name)

    @property
    def entry_count(self) -> int:
        return self._trailer.entry_count

    @property
    def codec(self) -> Codec:
        return self._trailer.codec

    @property
    def block_count(self) -> int:
        """The number of data blocks."""
        return len(self._blocks)

    @property
    def first_keys(self) -> pa.BinaryArray:
        """Per block a key that is at most its first key, and above the last key of the block before.

        Keys are compared as UTF-8, or as UTF-16 in files that Hudi wrote (see block_search).
        """
        return pa.array([entry.key for entry in self._blocks], pa.binary())

    @cached_property
    def file_info(self) -> dict[str, bytes]:
        """The pairs in the file info block: `schema`, `hfile.LASTKEY` and others."""
        offset = self._trailer.file_info_offset
        _, payload = self._read_block_at(offset, HFileBlockType.FILE_INFO)
        try:
            if not payload.startswith(b"PBUF"):
                raise IndexError("it does not start with PBUF")
            size, position = read_protobuf_varint(payload, 4)
            pairs = [
                dict(read_protobuf_fields(pair))
                for _, pair in read_protobuf_fields(payload[position : position + size])
                if isinstance(pair, bytes)
            ]
            return {_text(pair.get(1, b"")): _one_of_equal(_raw(pair.get(2, b""))) for pair in pairs}
        except (IndexError, UnicodeDecodeError) as error:
            raise CorruptFileError(
                f"{self.name}: the file info at offset {offset} is not readable: {error}"
            ) from error

    def forget_tail(self) -> None:
        """Frees the tail of the file, which is in memory since it was opened, and keeps the parsed index and
        the file info. For a reader that is kept for long.
        """
        _ = self._blocks, self.file_info
        self._source.forget_tail()

    @property
    def schema(self) -> str:
        """The Avro schema of the values, as the writer stored it; '' when it stored none."""
        with damage_in(self.name, "the schema in its file info"):
            return self.file_info.get("schema", b"").decode()

    @cached_property
    def _blocks(self) -> list[IndexEntry]:
        offset = self._trailer.load_on_open_offset
        _, payload = self._read_block_at(offset, HFileBlockType.ROOT_INDEX)
        entries = read_root_index(payload, self._trailer.data_index_count, self.name, offset)
        levels = self._trailer.index_levels
        if levels > _INDEX_LEVELS_MAX:
            raise CorruptFileError(f"{self.name}: the trailer claims {levels} index levels")
        for level in range(levels - 1, 0, -1):
            check_ranges(entries, offset, self.name)
            kind = HFileBlockType.LEAF_INDEX if level == 1 else HFileBlockType.INTERMEDIATE_INDEX
            entries = [
                child
                for parent in entries
                for child in read_non_root_index(
                    self._read_block_at(parent.offset, kind)[1], self.name, parent.offset
                )
            ]
        check_ranges(entries, offset, self.name)
        return entries

    @cached_property
    def _search(self) -> BlockSearch:
        with damage_in(self.name, "its index of keys"):
            return BlockSearch([entry.key for entry in self._blocks])

    def locate(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """Per key the number of the only block that can hold it.

        -1: no block can. AMBIGUOUS_BLOCK (-2): two blocks can, see `candidate_blocks`.
        """
        return self._search.locate(keys)

    def candidate_blocks(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """A (2, n) array: the block that can hold each key under UTF-8 and under UTF-16 order; -1: none
        can.
        """
        return self._search.candidates(keys)

    def read_block(self, number: int) -> KeyValues:
        """The entries of the data block `number`."""
        entry = self._blocks[number]
        payload = self._payload(entry, self._source.read(entry.offset, entry.size))
        return decode_entries(payload, self.name, entry.offset)

    def runs(self, numbers: Sequence[int]) -> Iterator[BlockRun]:
        """Yields the entries of these data blocks; `numbers` ascend.

        Near blocks are read together (up to 8 MiB), and decoded together (from 1 MiB on).
        """
        begin, payloads, size = 0, list[bytes](), 0
        for end, payload in enumerate(self._payloads(numbers), 1):
            payloads.append(payload)
            size += len(payload)
            if size >= _RUN_BYTES or end == len(numbers):
                some = numbers[begin:end]
                offsets = [self._blocks[number].offset for number in some]
                yield BlockRun(some, *decode_blocks(payloads, self.name, offsets))
                begin, payloads, size = end, [], 0

    def find(self, keys: pa.StringArray, inflating: Executor | None = None) -> FoundValues:
        """The values of these keys, without decoding other entries. Each block that can hold some of them is
        read; near ones are read together (up to 8 MiB).

        ``inflating``: has threads that inflate blocks while the caller reads and searches others.
        """
        by_utf8, by_utf16 = self._search.candidates(keys)
        both = np.flatnonzero((by_utf16 != by_utf8) & (by_utf16 >= 0))
        first = np.flatnonzero(by_utf8 >= 0)
        members = np.concatenate([first, both])
        blocks = np.concatenate([by_utf8[first], by_utf16[both]])
        # A stable sort by block puts the keys of each block next to each other: with the blocks 4, 2, 4 of
        # three keys the members become 1, 0, 2, the numbers 2, 4, which begin at 0 and 1.
        order = np.argsort(blocks, kind="stable")
        members, blocks = members[order], blocks[order]
        numbers, begins = np.unique(blocks, return_index=True)
        names = keys.cast(pa.binary()).take(pa.array(members)).to_pylist()
        positions, values = list[int](), list[bytes]()
        ranges = zip(begins.tolist(), [*begins.tolist(), len(members)][1:], strict=True)
        offsets = [self._blocks[number].offset for number in numbers.tolist()]
        payloads = self._payloads(numbers.tolist(), inflating)
        for payload, (begin, end), offset in zip(payloads, ranges, offsets, strict=True):
            for position, value in find_values(payload, names[begin:end], self.name, offset):
                positions.append(begin + position)
                values.append(value)
        return FoundValues(
            members[np.array(positions, np.int64)], pa.array(values, pa.binary()), len(numbers)
        )

    def blocks_of(self, keys: pa.StringArray) -> int:
        """How many data blocks can hold some of these keys: so many are read by `find`."""
        candidates = self._search.candidates(keys)
        return len(np.unique(candidates[candidates >= 0]))

    def first_key(self, number: int) -> bytes:
        """A key that is at most the block's first one, as in `first_keys`."""
        return self._blocks[number].key

    def block_bytes(self, number: int) -> int:
        """The size of a data block in the file, in bytes."""
        return self._blocks[number].size

    def stored(self, numbers: Sequence[int]) -> Iterator[StoredBlock]:
        """Yields these data blocks as they lie in the file; `numbers` ascend. Near blocks are read
        together (up to 8 MiB). Their payloads are not looked at.
        """
        for number, data in self._chunks(numbers):
            entry = self._blocks[number]
            header = self._data_header(entry, data)
            if len(data) != HEADER_BYTES + header.on_disk_size:
                raise CorruptFileError(
                    f"{self.name}: block at offset {entry.offset} has {header.on_disk_size} bytes, the index "
                    f"says {entry.size - HEADER_BYTES}"
                )
            checksums = header.on_disk_size - header.compressed_size
            last_key = partial(self._last_key, number)
            yield StoredBlock(data, entry.key, header.uncompressed_size, checksums, last_key)

    def _last_key(self, number: int) -> bytes:
        keys = self.read_block(number).keys
        return bytes(keys.cast(pa.binary())[-1].as_py()) if len(keys) else self._blocks[number].key

    def _payloads(self, numbers: Sequence[int], inflating: Executor | None = None) -> Iterator[bytes]:
        if inflating is None:
            yield from self._inflated(self._chunks(numbers))
            return
        parts = self._parts(numbers)
        first = next(parts, [])
        if len(first) == len(numbers):
            # A thread would do what the caller can do as soon.
            yield from self._inflated(first)
            return
        under_way = deque[Future[list[bytes]]]()
        try:
            for some in chain([first], parts):
                under_way.append(inflating.submit(self._inflated_part, some))
                if len(under_way) > _AHEAD:
                    yield from under_way.popleft().result()
            while under_way:
                yield from under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()

    def _parts(self, numbers: Sequence[int]) -> Iterator[list[tuple[int, bytes]]]:
        """These blocks as they lie in the file, so many at a time as one thread inflates."""
        some, size = list[tuple[int, bytes]](), 0
        for number, data in self._chunks(numbers):
            some.append((number, data))
            header = BlockHeader.unpack(data, self.name, self._blocks[number].offset)
            size += max(header.uncompressed_size, len(data))
            if size >= _INFLATED_AT_ONCE:
                yield some
                some, size = [], 0
        if some:
            yield some

    def _inflated_part(self, stored: Sequence[tuple[int, bytes]]) -> list[bytes]:
        return list(self._inflated(stored))

    def _inflated(self, stored: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
        for number, data in stored:
            yield self._payload(self._blocks[number], data)

    def _chunks(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """(number, bytes) of each of these blocks; neighbouring ones, and those with small gaps between them,
        are read at once.
        """
        at = 0
        while at < len(numbers):
            begin, end, behind = self._blocks[numbers[at]].offset, at, 0
            while end < len(numbers):
                entry = self._blocks[numbers[end]]
                stop = entry.offset + entry.size
                if end > at and (entry.offset - behind > _GAP_BYTES or stop - begin > _READ_AHEAD_BYTES):
                    break
                end, behind = end + 1, stop
            chunk = self._source.read(begin, behind - begin)
            for number in numbers[at:end]:
                entry = self._blocks[number]
                yield number, chunk[entry.offset - begin : entry.offset - begin + entry.size]
            # Not beside the next one.
            del chunk
            at = end

    def read_all(self) -> KeyValues:
        """All entries of the file. Raises CorruptFileError when there are not as many as the trailer says."""
        parts = [run.content for run in self.runs(range(self.block_count))]
        keys = pa.concat_arrays([part.keys for part in parts]) if parts else pa.array([], pa.string())
        values = pa.concat_arrays([part.values for part in parts]) if parts else pa.array([], pa.binary())
        if len(keys) != self.entry_count:
            raise CorruptFileError(
                f"{self.name}: {len(keys)} entries, but the trailer says {self.entry_count}"
            )
        return KeyValues(keys, values)

    def _payload(self, entry: IndexEntry, data: bytes) -> bytes:
        header = self._data_header(entry, data)
        return unpack_payload(data, header, self._trailer.codec, self.name, entry.offset)

    def _data_header(self, entry: IndexEntry, data: bytes) -> BlockHeader:
        header = BlockHeader.unpack(data, self.name, entry.offset)
        if header.block_type is not HFileBlockType.DATA:
            raise CorruptFileError(
                f"{self.name}: {header.block_type.name} block at offset {entry.offset}, not DATA"
            )
        return header

    def _read_block_at(self, offset: int, expected: HFileBlockType) -> tuple[BlockHeader, bytes]:
        header = BlockHeader.unpack(self._source.read(offset, HEADER_BYTES), self.name, offset)
        if header.block_type is not expected:
            raise CorruptFileError(
                f"{self.name}: {header.block_type.name} block at offset {offset}, not {expected.name}"
            )
        data = self._source.read(offset, HEADER_BYTES + header.on_disk_size)
        return header, unpack_payload(data, header, self._trailer.codec, self.name, offset)


@lru_cache(maxsize=256)
def _one_of_equal(value: bytes) -> bytes:
    """One object for all equal ones: thousands of readers have the same schema of some KiB."""
    return value


def _text(value: int | bytes) -> str:
    return _raw(value).decode()


def _raw(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise IndexError("a number where a byte string belongs")
    return value
