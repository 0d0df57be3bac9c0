"""Digests by file group. The rows of a file group and the index entries that name it get a digest each
(`hudi_format.key_digest`), and both must be equal. A full run compares the keys themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.key_digest import EMPTY, MODULUS, Digest, key_digest, key_hashes
from tidemark.hudi_format.model import RecordLocation


class Digests:
    """Digests by file group. A file group without keys is equal to one that is not in here."""

    def __init__(self, known: Mapping[RecordLocation, Digest] | None = None) -> None:
        self._digests: dict[RecordLocation, Digest] = dict(known or {})

    def __getitem__(self, location: RecordLocation) -> Digest:
        return self._digests.get(location, EMPTY)

    def __iter__(self) -> Iterator[RecordLocation]:
        return iter(self._digests)

    @property
    def keys(self) -> int:
        """Number of keys in all file groups."""
        return sum(count for count, _ in self._digests.values())

    def set(self, location: RecordLocation, digest: Digest) -> None:
        """Sets a file group's digest."""
        self._digests[location] = digest

    def add(self, location: RecordLocation, keys: pa.Array | pa.ChunkedArray) -> None:
        """Adds the keys of one file group."""
        self._change(location, *key_digest(keys))

    def add_located(
        self,
        keys: pa.Array,
        location_ids: npt.NDArray[np.int32],
        locations: list[RecordLocation],
        sign: int = 1,
    ) -> None:
        """Adds each key to the file group of its location; ``sign`` -1: removes it.

        ``location_ids``: per key an index into ``locations``; keys with -1 are left out.
        """
        chosen = np.flatnonzero(location_ids >= 0)
        if not chosen.size:
            return
        # The sum of hashes per location. `add.at` also handles repeated ids: ids [0, 1, 0] with the hashes
        # 5, 7, 9 give the totals [14, 7].
        ids = location_ids[chosen]
        totals = np.zeros(len(locations), np.uint64)
        np.add.at(totals, ids, key_hashes(keys.take(pa.array(chosen))))
        counts = np.bincount(ids, minlength=len(locations))
        for number in np.flatnonzero(counts).tolist():
            self._change(locations[number], sign * int(counts[number]), sign * int(totals[number]))

    def differing(self, other: Digests) -> list[RecordLocation]:
        """The file groups whose digests differ, sorted."""
        both = self._digests.keys() | other._digests.keys()
        return sorted(location for location in both if self[location] != other[location])

    def _change(self, location: RecordLocation, count: int, total: int) -> None:
        before = self[location]
        self._digests[location] = (before[0] + count, (before[1] + total) % MODULUS)
