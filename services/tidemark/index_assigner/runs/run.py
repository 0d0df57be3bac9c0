"""One published run, a copy of a shard's base file or a change run, mapped into memory and searched by
batches.

Before the first use of an image, and after its pages were given back here, they are mapped by
`MADV_POPULATE_READ` and compared with their checksum: a page that cannot be read is then an error, and no
signal that ends the process. Where the kernel has no such call (before Linux 5.14) the image is read by
`pread`. Pages that the kernel takes back by itself, under memory pressure, are read again without that. Files
are never cut off once they are published.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.hfile.block_search import BlockSearch
from tidemark.index_assigner.domain.key_stretches import stretches
from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array, Locations
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.runs.checksums import crc32
from tidemark.index_assigner.runs.directory import (
    FOOTER_BYTES,
    Directory,
    decode_directory,
    directory_length,
)
from tidemark.index_assigner.runs.entries import ABSENT, Entries, UInt8Array
from tidemark.index_assigner.runs.errors import RunDamagedError, RunRefusedError
from tidemark.index_assigner.runs.files import RunFolder, holes
from tidemark.index_assigner.runs.images import (
    FoundPlaces,
    Images,
    ImageSearch,
    UInt32Array,
    entries_of,
    tags_of,
)
from tidemark.index_assigner.runs.mapped_blocks import MappedBlocks

_PADDING: Final = 8
_POPULATE_READ: Final = 22
"""Of Linux's `madvise`; Python's `mmap` has no name for it."""
_BLOCKS_AT_ONCE: Final = 32
_BYTES_AT_ONCE: Final = 1 << 21


@dataclass(frozen=True, slots=True)
class FoundEntries:
    """What a change run has of n keys: whether it has an entry (``known``), and that entry, with location
    ids of this process. Where it has none, the location is NO_LOCATION, and the other columns say nothing.
    """

    known: BoolArray
    locations: Int32Array
    ordering: Int64Array
    flags: UInt8Array


@dataclass(frozen=True, slots=True)
class FoundInBase:
    """What a copy of a base file says of n keys. ``known``: whether it says anything; of the others it lacks
    a block that may have them. ``locations``: NO_LOCATION where a known key is absent. ``blocks``: where each
    key belongs by UTF-8 order, -1: before the first block.
    """

    known: BoolArray
    locations: Int32Array
    blocks: Int64Array


class RunFile:
    """An open run file, read by `pread`. Each image is compared with its checksum.

    ``held``: which blocks have an image. A copy of a base file may be written without some, and others may
    have gone since.
    """

    def __init__(self, folder: RunFolder, name: str) -> None:
        """Opens it. Raises RunDamagedError when the file is gone, cut off or has another directory."""
        self.name = name
        self._descriptor = folder.open(name)
        self._closing = weakref.finalize(self, os.close, self._descriptor)
        try:
            self.size = os.fstat(self._descriptor).st_size
            self.directory, self._directory_start = self._read_directory()
            self._begins = self.directory.images.starts
            self._ends = np.append(self._begins[1:], self._directory_start)
            self.held = self._not_in_holes()
        except BaseException:
            self._closing()
            raise

    def entries(self, locations: Locations) -> Iterator[Entries]:
        """Yields all entries of a change run in ascending order of their keys, some thousand or some MiB at a
        time, with ids of these locations.

        Raises RunDamagedError.
        """
        ids, images = self._ids(locations), self.directory.images
        flags = np.frombuffer(self.directory.flags, np.uint8)
        for first, behind in stretches(self._ends - self._begins, _BLOCKS_AT_ONCE, _BYTES_AT_ONCE):
            blocks = range(first, behind)
            data = b"".join([*(self._image(block) for block in blocks), bytes(_PADDING)])
            of_blocks = slice(blocks.start, blocks.stop)
            starts = images.starts[of_blocks] - images.starts[first]
            part = Images(starts, images.counts[of_blocks], images.widths[of_blocks], images.ordered)
            keys, places = entries_of(np.frombuffer(data, np.uint8), part)
            own = places.locations
            yield Entries(keys, ids[own], places.ordering, flags[own]).sorted()

    def close(self) -> None:
        """Gives the file back."""
        self._closing()

    @property
    def held_entries(self) -> int:
        """Entries that the file has."""
        return int(self.directory.images.counts[self.held].sum())

    @property
    def held_bytes(self) -> int:
        """Bytes of the images that the file has."""
        return int((self._ends - self._begins)[self.held].sum())

    @property
    def file_bytes(self) -> Int64Array:
        """The bytes that each block takes: of its image, also where that is gone, and of the directory."""
        of_directory = (self.size - self._directory_start) // max(len(self.held), 1)
        sizes: Int64Array = self._ends - self._begins + of_directory
        return sizes

    def _not_in_holes(self) -> BoolArray:
        """Which blocks have all of their image. Entries never leave a change run: a hole there is damage."""
        held = self.directory.held.copy()
        if not self.directory.identity.change:
            for begin, end in holes(self._descriptor, self._directory_start):
                first = np.searchsorted(self._ends, begin, side="right")
                held[first : np.searchsorted(self._begins, end, side="left")] = False
        return held

    def _ids(self, locations: Locations) -> Int32Array:
        """The id of each location of the directory; NO_LOCATION of absent keys, and in a last cell."""
        flags = self.directory.flags or bytes(len(self.directory.locations))
        ids = [
            NO_LOCATION if flag & ABSENT else locations.intern(path, file_id)
            for (path, file_id), flag in zip(self.directory.locations, flags, strict=True)
        ]
        return np.array([*ids, NO_LOCATION], np.int32)

    def _image(self, block: int) -> bytes:
        begin, end = int(self._begins[block]), int(self._ends[block])
        image = self._read(begin, end - begin)
        if crc32(image) != int(self.directory.checksums[block]):
            raise RunDamagedError(f"{self.name}: the image of block {block} is damaged")
        return image

    def _read_directory(self) -> tuple[Directory, int]:
        footer = self._read(max(self.size - FOOTER_BYTES, 0), FOOTER_BYTES)
        length = directory_length(footer, self.size, self.name)
        start = self.size - FOOTER_BYTES - length
        return decode_directory(self._read(start, length), footer, self.name), start

    def _read(self, offset: int, length: int) -> bytes:
        """Raises RunDamagedError when the disk cannot give all of it."""
        try:
            data = os.pread(self._descriptor, length, offset)
        except OSError as error:
            raise RunDamagedError(f"{self.name}: bytes at {offset} cannot be read: {error}") from error
        if len(data) != length:
            raise RunDamagedError(f"{self.name}: {len(data)} of {length} bytes at {offset}")
        return data


class Pages(Protocol):
    """Bounds the mapped pages of all runs. ``at_once``: bytes of images that a look-up may map before it
    calls `used`.
    """

    @property
    def at_once(self) -> int: ...

    def used(self, run: Run) -> None:
        """Counts what a look-up has mapped of the run, and gives back what is too much."""


class _AllPages:
    at_once = sys.maxsize

    def used(self, run: Run) -> None:
        pass


class Run(RunFile):
    """Answers where keys of its shard are in the base file that it was made from, or what a change run has
    of them.
    """

    def __init__(
        self, folder: RunFolder, name: str, locations: Locations, pages: Pages | None = None
    ) -> None:
        """Opens it. ``pages``: None sets no limit. Raises RunDamagedError when the file is gone, cut off or
        has another directory, RunRefusedError when the system has no room for it.
        """
        super().__init__(folder, name)
        self._pages = pages or _AllPages()
        try:
            self._mapping = mmap.mmap(self._descriptor, self.size, prot=mmap.PROT_READ)
        except OSError as error:
            self._closing()
            raise RunRefusedError(f"{name} cannot be mapped: {error}") from error
        self._folder = folder
        self._mapped = MappedBlocks(self._begins, self._ends)
        self._blocks = BlockSearch(self.directory.first_keys)
        self._search = ImageSearch(np.frombuffer(self._mapping, np.uint8), self.directory.images)
        self._local = self._ids(locations)
        self._flags = np.frombuffer(self.directory.flags + b"\0", np.uint8)

    def find(self, keys: pa.StringArray) -> FoundInBase:
        """The location of each key as an id of this process, NO_LOCATION where the shard does not have it.

        Raises RunDamagedError when one of the images that have to be searched is damaged.
        """
        by_utf8, by_utf16 = self._blocks.candidates(keys)
        found = self._places(keys, by_utf8, by_utf16)
        # A key is absent when each block that may have it was searched; before the first one, -1, there is
        # none.
        held = np.append(self.held, True)
        known = (found.locations >= 0) | held[by_utf8] & held[by_utf16]
        return FoundInBase(known, self._local[found.locations], by_utf8)

    def find_entries(self, keys: pa.StringArray) -> FoundEntries:
        """What a change run has of each key. Raises RunDamagedError as `find`."""
        found = self._places(keys, *self._blocks.candidates(keys))
        own = found.locations
        return FoundEntries(own >= 0, self._local[own], found.ordering, self._flags[own])

    def evict(self, chosen: BoolArray) -> bool:
        """Gives the images of these blocks back to the disk. False: the file system cannot do that."""
        going = np.flatnonzero(chosen & self.held)
        # Nobody may look at a page that is about to read as zeros.
        self.held[going] = False
        self._mapped.gone(going)
        stretches = np.split(going, np.flatnonzero(np.diff(going) > 1) + 1) if going.size else []
        ranges = [(int(self._begins[blocks[0]]), int(self._ends[blocks[-1]])) for blocks in stretches]
        return self._folder.punch(self.name, ranges)

    def _places(self, keys: pa.StringArray, by_utf8: Int64Array, by_utf16: Int64Array) -> FoundPlaces:
        """The run's own number of each key's location; NO_LOCATION picks the last cell of a column."""
        tags = tags_of(keys)
        found = self._find_in(by_utf8, keys, tags)
        differ = np.flatnonzero((by_utf16 != by_utf8) & (found.locations < 0))
        if differ.size:
            again = self._find_in(by_utf16[differ], keys.take(pa.array(differ)), tags[differ])
            found.locations[differ], found.ordering[differ] = again.locations, again.ordering
        return found

    def _find_in(self, blocks: Int64Array, keys: pa.StringArray, tags: UInt32Array) -> FoundPlaces:
        searched = np.where(np.append(self.held, False)[blocks], blocks, -1)
        wanted = np.unique(searched[searched >= 0])
        sizes = (self._ends - self._begins)[wanted]
        unchecked = self._mapped.unchecked(wanted)
        if (self._ends - self._begins)[unchecked].sum() <= self._pages.at_once:
            self._check(wanted)
            return self._search.find(keys, tags, searched)
        # The portion of each block, and in a last cell that of keys without one.
        portion_of = np.zeros(len(self.held) + 1, np.int64)
        portion_of[wanted] = np.cumsum(sizes) // max(self._pages.at_once, 1)
        portions = portion_of[searched]
        found = FoundPlaces(np.full(len(keys), NO_LOCATION, np.int32), np.zeros(len(keys), np.int64))
        for portion in np.unique(portions).tolist():
            at = np.flatnonzero(portions == portion)
            self._check(np.unique(searched[at][searched[at] >= 0]))
            part = self._search.find(keys.take(pa.array(at)), tags[at], searched[at])
            found.locations[at], found.ordering[at] = part.locations, part.ordering
            self._pages.used(self)
        return found

    def _check(self, blocks: Int64Array) -> None:
        new = self._mapped.unchecked(blocks)
        if new.size:
            self._verify(new)
        self._mapped.checked(blocks, new)

    def _verify(self, blocks: Int64Array) -> None:
        """Compares the images of these ascending blocks with their checksums. Pages of neighbours are mapped
        by one call: after a restart that takes half of the CPU of a first look-up in all images.
        """
        begins, ends = self._begins[blocks], self._ends[blocks]
        cuts = np.flatnonzero(begins[1:] != ends[:-1])
        firsts, lasts = begins[np.append(0, cuts + 1)], ends[np.append(cuts, len(ends) - 1)]
        if not all(map(self._populate, firsts.tolist(), lasts.tolist())):
            for block in blocks.tolist():
                self._image(block)
            return
        wanted = self.directory.checksums[blocks].tolist()
        with memoryview(self._mapping) as mapped:
            right = [
                crc32(mapped[begin:end]) == checksum
                for begin, end, checksum in zip(begins.tolist(), ends.tolist(), wanted, strict=True)
            ]
        if not all(right):
            raise RunDamagedError(f"{self.name}: the image of block {blocks[right.index(False)]} is damaged")

    def _populate(self, begin: int, end: int) -> bool:
        """Maps the pages of these bytes; False where that fails, and `pread` has to tell why."""
        start = begin & -mmap.PAGESIZE
        try:
            self._mapping.madvise(_POPULATE_READ, start, end - start)
        except OSError:
            return False
        return True

    @property
    def mapped_bytes(self) -> int:
        """Bytes of the pages that may be resident."""
        return self._mapped.nbytes

    def give_back_pages(self, all_of_them: bool = True) -> None:
        """Gives mapped pages back: all, or those that were not used since the last call. Their images are
        checked again before their next use.
        """
        for begin, length in self._mapped.give_back(all_of_them):
            self._mapping.madvise(mmap.MADV_DONTNEED, begin, length)

    def close(self) -> None:
        """Ends the mapping; the run answers nothing any more."""
        del self._search
        self._mapping.close()
        super().close()
