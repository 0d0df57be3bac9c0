"""Which blocks of a mapped run were looked at: their checksums were right, and their pages may be resident.

The kernel maps a page that is touched together with its neighbours in the page cache, in windows of 64 KiB.
Such a window counts as mapped once a block in it was looked at.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array

_WINDOW_BITS: Final = 16


class MappedBlocks:
    """For blocks with images at [begins, ends) of the file."""

    def __init__(self, begins: Int64Array, ends: Int64Array) -> None:
        self._first = begins >> _WINDOW_BITS
        self._behind = ((ends - 1) >> _WINDOW_BITS) + 1
        self._windows = int(self._behind.max(initial=0))
        self._checked = np.zeros(len(begins), np.bool_)
        self._used = np.zeros(len(begins), np.bool_)
        self.nbytes = 0
        """Bytes of the windows that are mapped."""

    def unchecked(self, blocks: Int64Array) -> Int64Array:
        """Those of the blocks that are to be checked before they are looked at."""
        found: Int64Array = blocks[~self._checked[blocks]]
        return found

    def checked(self, blocks: Int64Array, new: Int64Array) -> None:
        """Takes note that the blocks are looked at now; ``new``: those of them that were checked just now."""
        self._used[blocks] = True
        if new.size:
            self._checked[new] = True
            self._count()

    def gone(self, blocks: Int64Array) -> None:
        """Forgets blocks whose images are not in the file any more."""
        self._checked[blocks] = False
        self._count()

    def give_back(self, all_of_them: bool) -> list[tuple[int, int]]:
        """Returns the byte ranges (begin, length) whose pages go, and forgets that their blocks were checked.

        Without ``all_of_them`` blocks stay that were looked at since the last call.
        """
        before = self._mapped()
        self._checked &= self._used & (not all_of_them)
        self._used[:] = False
        self._count()
        gone = before & ~self._mapped()
        # The ends of each stretch of windows: [0, 1, 1, 0, 1] changes at 1, 3, 4 and 5.
        edges = np.flatnonzero(np.diff(gone.astype(np.int8), prepend=0, append=0)) << _WINDOW_BITS
        return [(begin, end - begin) for begin, end in edges.reshape(-1, 2).tolist()]

    def _count(self) -> None:
        self.nbytes = int(self._mapped().sum()) << _WINDOW_BITS

    def _mapped(self) -> BoolArray:
        """For each window whether a checked block lies in it."""
        # One step up where a block begins, one down behind its end; their running sum says how many blocks
        # lie in a window. Blocks over the windows 0 to 1 and 1 make the steps 1, 1, -2 and the sums 1, 2, 0.
        steps = np.zeros(self._windows + 1, np.int64)
        np.add.at(steps, self._first[self._checked], 1)
        np.add.at(steps, self._behind[self._checked], -1)
        mapped: BoolArray = np.cumsum(steps[:-1]) > 0
        return mapped
