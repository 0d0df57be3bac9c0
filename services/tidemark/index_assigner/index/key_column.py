"""Keys in the order in which they came, as Arrow columns instead of Python objects.

A `bytes` object takes 33 bytes beside the key, and one that lives on keeps a MiB of freed neighbours from
going back to the system. A column is one buffer, which goes back whole.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array

Keys: TypeAlias = pa.LargeBinaryArray
KEY_TYPE = pa.large_binary()
_CHUNK_BYTES_MAX: Final = 8 << 20
"""Chunks are not joined beyond this: the copy would take as much memory again as all keys."""


class KeyColumn:
    """Keys by position, from 0. New ones come behind the last; old ones go from the front."""

    def __init__(self) -> None:
        self._chunks: list[Keys] = []
        self._starts: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self.nbytes = 0
        """Bytes of the keys and of the offsets between them."""

    def __len__(self) -> int:
        return int(self._starts[-1])

    def append(self, keys: Keys) -> None:
        """Adds keys behind the last.

        A chunk is joined with the one before while that is less than twice as long, and both together are
        not too large: there are about 20 chunks in a million keys, and each key is copied about 20 times at
        most.
        """
        if not len(keys):
            return
        chunks = [*self._chunks, keys]
        while len(chunks) > 1 and _are_to_join(*chunks[-2:]):
            joined = pa.concat_arrays(chunks[-2:])
            chunks[-2:] = [joined]
        self._set(chunks)

    def equal(self, positions: Int64Array, keys: Keys, at: Int64Array) -> BoolArray:
        """Whether the key at each position is the one in ``keys`` at the place that ``at`` has for it."""
        # In the order of positions each chunk is read once, and all keys are compared at once.
        order = np.argsort(positions)
        same = pc.equal(self.selected(positions[order]), keys.take(pa.array(at[order])))
        equal = np.empty(len(positions), np.bool_)
        equal[order] = same.to_numpy(zero_copy_only=False)
        return equal

    def widths(self, positions: Int64Array) -> Int64Array:
        """The bytes of the key at each of these ascending positions."""
        widths, bounds = np.empty(len(positions), np.int64), np.searchsorted(positions, self._starts)
        for number, chunk in enumerate(self._chunks):
            first, end = bounds[number : number + 2]
            offsets = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset :]
            at = positions[first:end] - self._starts[number]
            widths[first:end] = offsets[at + 1] - offsets[at]
        return widths

    def selected(self, positions: Int64Array) -> Keys:
        """A copy of the keys at these ascending positions."""
        # Which positions are in which chunk: of 1, 2, 4 with chunks that begin at 0 and 3 and end at 5 the
        # bounds are 0, 2, 3, so the first two are in the first chunk, at 1 and 2, and 4 is at 1 in the
        # second.
        bounds = np.searchsorted(positions, self._starts).tolist()
        parts = [
            chunk.take(pa.array(positions[first:end] - self._starts[number]))
            for number, (chunk, (first, end)) in enumerate(zip(self._chunks, pairwise(bounds), strict=True))
            if first < end
        ]
        return pa.concat_arrays(parts) if parts else pa.array([], KEY_TYPE)

    def drop_first(self, count: int) -> None:
        """Forgets the first keys; positions begin anew at 0."""
        self._keep(count, len(self))

    def drop_from(self, position: int) -> None:
        """Forgets the key at this position, and all behind it."""
        self._keep(0, position)

    def _keep(self, first: int, end: int) -> None:
        kept = []
        for number, chunk in enumerate(self._chunks):
            start = int(self._starts[number])
            low, high = max(first - start, 0), min(end - start, len(chunk))
            if low >= high:
                continue
            # A slice keeps the whole buffer in memory, a copy does not.
            whole = high - low == len(chunk)
            kept.append(chunk if whole else chunk.take(pa.array(np.arange(low, high))))
        self._set(kept)

    def _set(self, chunks: list[Keys]) -> None:
        self._chunks = chunks
        self._starts = np.cumsum([0, *map(len, chunks)], dtype=np.int64)
        self.nbytes = sum(int(chunk.nbytes) for chunk in chunks)


def _are_to_join(former: Keys, last: Keys) -> bool:
    return len(former) < 2 * len(last) and int(former.nbytes + last.nbytes) <= _CHUNK_BYTES_MAX
