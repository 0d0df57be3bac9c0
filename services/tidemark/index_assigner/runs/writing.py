"""Writes the run of one shard, block by block in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa

from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array, Locations
from tidemark.index_assigner.domain.reduce import Int64Array
from tidemark.index_assigner.runs.checksums import crc32
from tidemark.index_assigner.runs.directory import Directory, RunIdentity, encode_directory
from tidemark.index_assigner.runs.entries import UInt8Array
from tidemark.index_assigner.runs.images import Images, make_images

HEADER: Final = b"TIDERUN\x01" + bytes(8)
_FLAG_VALUES: Final = 8


class RunWriter:
    """Appends images to a new file. The caller publishes the file after `finish`."""

    def __init__(self, file: BinaryIO, identity: RunIdentity, locations: Locations) -> None:
        self._file, self._identity, self._locations = file, identity, locations
        self._numbers: dict[int, int] = {}
        self._starts: list[int] = []
        self._counts: list[int] = []
        self._widths: list[int] = []
        self._checksums: list[int] = []
        self._first_keys: list[bytes] = []
        self._held: list[bool] = []
        self._size = len(HEADER)
        file.write(HEADER)

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    def add(
        self,
        first_keys: Sequence[bytes],
        keys: pa.StringArray,
        locations: Int32Array,
        ordering: Int64Array | None,
        ends: Sequence[int],
        flags: UInt8Array | None = None,
    ) -> None:
        """Appends neighbouring blocks; block i has the entries from ``ends[i - 1]`` to ``ends[i]``.

        ``first_keys``: of each block, by which keys are led to it. ``locations``: ids of the writer's
        `Locations`. ``flags``: of each entry of a change run. None: this is a copy of a base file, whose
        entries with NO_LOCATION are deletes and are left out.
        """
        self._first_keys.extend(first_keys)
        self._held.extend(True for _ in first_keys)
        for image in make_images(keys, self._own_numbers(locations, flags), ordering, ends):
            self._file.write(image.data)
            self._starts.append(self._size)
            self._counts.append(image.count)
            self._widths.append(image.width)
            self._checksums.append(crc32(image.data))
            self._size += len(image.data)

    def leave_out(self, first_keys: Sequence[bytes]) -> None:
        """Appends neighbouring blocks without an image: the run does not know which keys they have."""
        count = len(first_keys)
        self._first_keys.extend(first_keys)
        self._held.extend(False for _ in first_keys)
        self._starts.extend([self._size] * count)
        for column in (self._counts, self._widths, self._checksums):
            column.extend([0] * count)

    def finish(self) -> None:
        """Writes the directory. Without it the file is no run."""
        paths, file_ids = self._locations.partition_paths, self._locations.file_ids
        images = Images(
            np.array(self._starts, np.int64),
            np.array(self._counts, np.int64),
            np.array(self._widths, np.int64),
            self._identity.ordered,
        )
        rows = [divmod(code, _FLAG_VALUES) for code in self._numbers]
        directory = Directory(
            self._identity,
            sum(self._counts),
            [(paths[place - 1], file_ids[place - 1]) if place else ("", "") for place, _ in rows],
            images,
            np.array(self._checksums, np.uint32),
            self._first_keys,
            np.array(self._held, np.bool_),
            bytes(flags for _, flags in rows) if self._identity.change else b"",
        )
        tail = encode_directory(directory)
        self._file.write(tail)
        self._size += len(tail)

    def _own_numbers(self, locations: Int32Array, flags: UInt8Array | None) -> Int32Array:
        """The run's own numbers of these locations with these flags; new ones get the next. Without flags
        NO_LOCATION stays.
        """
        codes = (locations.astype(np.int64) + 1) * _FLAG_VALUES + (0 if flags is None else flags)
        # A dictionary look-up for each distinct code alone: of the codes 9, 4, 9 these are 4, 9, at 1, 0, 1.
        distinct, which = np.unique(codes, return_inverse=True)
        own = [
            self._numbers.setdefault(code, len(self._numbers)) if code else NO_LOCATION
            for code in distinct.tolist()
        ]
        numbers: Int32Array = np.array(own, np.int32)[which]
        return numbers
