"""The image of one block of the record index in a run file, and the search in many images at once.

An image of n entries, sorted by their tag:

======================= ===========================================================
``tag`` n × u32          ascending; of keys with one tag, in any order
``location`` n × i32     the run's own number of the location
``end`` n × u32          where each key ends, counted from the first; left out where all keys have one width
``ordering`` n × i64     only in runs of tables with an ordering field
keys                     one after the other, then zeros up to a multiple of 8 bytes
======================= ===========================================================

All numbers are little-endian. A tag is the key's Java hash, which the shard is computed from, spread over 32
bits. Equal tags say nothing: a key is found only where all of its bytes are equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.columnar import BinaryColumn, gather_rows
from tidemark.hudi_format.record_index_hash import java_hash
from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array

ALIGNMENT: Final = 8
_SPREAD: Final = np.uint32(0x9E3779B1)
_WORD: Final = 8

UInt32Array = npt.NDArray[np.uint32]
Buffer = npt.NDArray[np.uint8]


def tags_of(keys: pa.StringArray) -> UInt32Array:
    """The tag of each key."""
    tags: UInt32Array = java_hash(keys).view(np.uint32) * _SPREAD
    return tags


@dataclass(frozen=True, slots=True)
class Images:
    """Where the images of n blocks lie in a buffer.

    ``starts``: bytes from the buffer's begin, multiples of 8. ``counts``: entries. ``widths``: bytes of each
    key, 0 where they differ. ``ordered``: whether entries have ordering values.
    """

    starts: Int64Array
    counts: Int64Array
    widths: Int64Array
    ordered: bool

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class FoundPlaces:
    """Answers for n keys: the run's number of the location, NO_LOCATION where the image does not have the
    key, and the ordering value, 0 where there is none.
    """

    locations: Int32Array
    ordering: Int64Array


@dataclass(frozen=True, slots=True)
class Image:
    """The bytes of one image, its entries, and the width of its keys (0: they differ)."""

    data: bytes
    count: int
    width: int


def make_images(
    keys: pa.StringArray, locations: Int32Array, ordering: Int64Array | None, ends: Sequence[int]
) -> Iterator[Image]:
    """The images of neighbouring blocks; block i has the entries from ``ends[i - 1]`` to ``ends[i]``.

    ``keys`` are unique. Entries with NO_LOCATION are deletes and are left out. ``ordering``: None in a run of
    a table without an ordering field.
    """
    live = np.flatnonzero(locations >= 0)
    bounds = np.concatenate([[0], np.searchsorted(live, ends)])
    # Blocks stay in their order, and entries are sorted by tag within each: the block is the upper half of
    # the number that is sorted by.
    tags = tags_of(keys)
    blocks = np.repeat(np.arange(len(ends), dtype=np.uint64), np.diff(bounds))
    order = live[np.argsort(blocks << np.uint64(32) | tags[live], kind="stable")]
    column = BinaryColumn.from_arrow(keys.take(pa.array(order)))
    lengths = column.lengths()
    stored_tags, stored_locations = tags[order].astype("<u4"), locations[order].astype("<i4")
    values = None if ordering is None else ordering[order].astype("<i8")
    for begin, end in itertools.pairwise(bounds.tolist()):
        width = int(lengths[begin]) if end > begin and (lengths[begin:end] == lengths[begin]).all() else 0
        first = int(column.offsets[begin])
        parts = [stored_tags[begin:end].tobytes(), stored_locations[begin:end].tobytes()]
        if not width:
            parts.append((column.offsets[begin + 1 : end + 1] - first).astype("<u4").tobytes())
        if values is not None:
            parts.append(values[begin:end].tobytes())
        parts.append(column.data[first : column.offsets[end]].tobytes())
        data = b"".join(parts)
        yield Image(data + bytes(-len(data) % ALIGNMENT), end - begin, width)


def entries_of(buffer: Buffer, images: Images) -> tuple[pa.StringArray, FoundPlaces]:
    """The keys of neighbouring images, in the order of the images, and what they have of each."""
    search = ImageSearch(buffer, images)
    # Block and place of every entry, without a loop: blocks of 2 and 3 entries give the blocks 0, 0, 1, 1, 1,
    # and 0 to 4 less the number of entries before the block, which is 0, 0, 2, 2, 2, gives the places 0, 1,
    # 0, 1, 2.
    blocks = np.repeat(np.arange(len(images)), images.counts)
    at = np.arange(len(blocks)) - np.repeat(np.cumsum(images.counts) - images.counts, images.counts)
    begins, lengths = search.key_range(blocks, at)
    keys = gather_rows(buffer, begins, begins + lengths).view(pa.string())
    return keys, FoundPlaces(search.location(blocks, at), search.ordering(blocks, at))


class ImageSearch:
    """Searches keys in images that lie in one buffer. ``buffer``: bytes, with 8 readable ones behind the last
    image.
    """

    def __init__(self, buffer: Buffer, images: Images) -> None:
        self._images = images
        self._numbers = buffer[: len(buffer) // 4 * 4].view("<u4")
        # A view whose elements overlap: 8 bytes as one number, from every byte on.
        self._words: npt.NDArray[np.uint64] = np.ndarray(
            (max(len(buffer) - _WORD + 1, 0),), "<u8", buffer, strides=(1,)
        )

    def find(self, keys: pa.StringArray, tags: UInt32Array, blocks: Int64Array) -> FoundPlaces:
        """Looks each key up in the image of its block; -1: in none."""
        locations = np.full(len(keys), NO_LOCATION, np.int32)
        ordering = np.zeros(len(keys), np.int64)
        open_keys = np.flatnonzero(blocks >= 0)
        search = _KeySearch(self, keys, tags, blocks)
        at = search.first_at_least(open_keys)
        # Several keys may have one tag: go on from entry to entry, as long as the tag is the wanted one.
        while open_keys.size:
            block = blocks[open_keys]
            inside = np.flatnonzero(at < self._images.counts[block])
            open_keys, at, block = open_keys[inside], at[inside], block[inside]
            same = np.flatnonzero(self.tag(block, at) == tags[open_keys])
            open_keys, at, block = open_keys[same], at[same], block[same]
            equal = search.are_equal(open_keys, at)
            hits = open_keys[equal]
            locations[hits] = self.location(block[equal], at[equal])
            if self._images.ordered:
                ordering[hits] = self.ordering(block[equal], at[equal])
            open_keys, at = open_keys[~equal], at[~equal] + 1
        return FoundPlaces(locations, ordering)

    def tag(self, blocks: Int64Array, at: Int64Array) -> UInt32Array:
        """The tag of entry ``at`` of each block."""
        tags: UInt32Array = self._numbers[self._images.starts[blocks] // 4 + at]
        return tags

    def location(self, blocks: Int64Array, at: Int64Array) -> Int32Array:
        """The run's number of the location of entry ``at`` of each block."""
        images = self._images
        cells = self._numbers[images.starts[blocks] // 4 + images.counts[blocks] + at]
        locations: Int32Array = cells.view(np.int32)
        return locations

    def ordering(self, blocks: Int64Array, at: Int64Array) -> Int64Array:
        """The ordering value of entry ``at`` of each block."""
        values: Int64Array = self.words(self._ordering_start(blocks) + at * 8).view(np.int64)
        return values

    def key_range(self, blocks: Int64Array, at: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Where the key of entry ``at`` of each block begins and how many bytes it has."""
        images = self._images
        counts, widths = images.counts[blocks], images.widths[blocks]
        first = self._ordering_start(blocks) + (counts * 8 if images.ordered else 0)
        mixed = np.flatnonzero(widths == 0)
        begins: Int64Array = at * widths
        lengths: Int64Array = widths.copy()
        ends = images.starts[blocks[mixed]] // 4 + 2 * counts[mixed]
        entry = at[mixed]
        begins[mixed] = np.where(entry > 0, self._numbers[ends + np.maximum(entry - 1, 0)], 0)
        lengths[mixed] = self._numbers[ends + entry] - begins[mixed]
        return first + begins, lengths

    def words(self, positions: Int64Array) -> npt.NDArray[np.uint64]:
        """The eight bytes from each position on, as a number."""
        words: npt.NDArray[np.uint64] = self._words[positions]
        return words

    def _ordering_start(self, blocks: Int64Array) -> Int64Array:
        images = self._images
        columns = 2 + (images.widths[blocks] == 0)
        starts: Int64Array = images.starts[blocks] + images.counts[blocks] * 4 * columns
        return starts

    @property
    def counts(self) -> Int64Array:
        """Entries of each block."""
        return self._images.counts


class _KeySearch:
    """One batch of keys."""

    def __init__(
        self, search: ImageSearch, keys: pa.StringArray, tags: UInt32Array, blocks: Int64Array
    ) -> None:
        self._search, self._tags, self._blocks = search, tags, blocks
        column = BinaryColumn.from_arrow(keys)
        self._starts, self._lengths = column.offsets[:-1], column.lengths()
        data = np.concatenate([column.data, np.zeros(_WORD, np.uint8)])
        self._words: npt.NDArray[np.uint64] = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))

    def first_at_least(self, keys: Int64Array) -> Int64Array:
        """The first entry of each key's block whose tag is at least the key's; behind the last if none is."""
        blocks, tags = self._blocks[keys], self._tags[keys]
        low, high = np.zeros(len(keys), np.int64), self._search.counts[blocks].copy()
        for _ in range(int(high.max(initial=0)).bit_length()):
            middle = (low + high) // 2
            # Where the range is empty, entry 0 is read and nothing follows from it.
            below = (low < high) & (self._search.tag(blocks, np.where(low < high, middle, 0)) < tags)
            low = np.where(below, middle + 1, low)
            high = np.where(below, high, middle)
        return low

    def are_equal(self, keys: Int64Array, at: Int64Array) -> BoolArray:
        """Whether each key has exactly the bytes of entry ``at`` of its block."""
        begins, lengths = self._search.key_range(self._blocks[keys], at)
        equal: BoolArray = lengths == self._lengths[keys]
        going = np.flatnonzero(equal)
        for offset in range(0, int(lengths[going].max(initial=0)), _WORD):
            going = going[lengths[going] > offset]
            wanted = self._words[self._starts[keys[going]] + offset]
            stored = self._search.words(begins[going] + offset)
            beyond = (np.maximum(_WORD - (lengths[going] - offset), 0) * 8).astype(np.uint64)
            # Little-endian: the bytes behind the key's end are the upper ones, which the shift drops.
            same = (wanted ^ stored) << beyond == 0
            equal[going[~same]] = False
            going = going[same]
        return equal
