"""How many bytes RocksDB and the run files of one assigner may take: `state.disk`, or less where the disk is
smaller.

What the disk has for both is what they take plus what is free there. An eighth of that stays free: RocksDB
writes anew what it merges before it deletes the old, and it ends the process when a write fails. Example:
`state.disk` is 10 GiB, both take 3 GiB, and 1 GiB is free. The disk has 4 GiB for them, so 3.5 GiB is the
limit. When they give 500 MiB back, the limit is the same and they take 2.5 GiB: a freed byte counts whole.
Of what is free alone each load could take a share anew, until nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.index_assigner.index.limits import IndexLimits, share_of_runs
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.runs.files import RunFolder

_LEFT_FREE: Final = 8
"""One part in so many of the disk."""


class DiskRoom:
    """The room of one assigner. Who decides asks for the limit once, and keeps to it while files are deleted:
    a file system may take a moment to count their bytes as free.
    """

    def __init__(
        self, rocks: RocksTier, folder: RunFolder, limits: IndexLimits, loading: Callable[[], int]
    ) -> None:
        """``loading``: bytes of the run file that is being written."""
        self._rocks, self._folder, self._limits, self._loading = rocks, folder, limits, loading

    @property
    def run_bytes(self) -> int:
        """Bytes of all run files, of the one being written as well."""
        return self._folder.disk_bytes() + self._loading()

    def limit(self) -> int:
        """Bytes that RocksDB and all run files may take by what the disk has now."""
        there = self.used + self._folder.free_bytes()
        return min(self._limits.disk_bytes, there - there // _LEFT_FREE)

    def over(self, limit: int) -> int:
        """Bytes that are to leave; none where it is 0 or less."""
        return self.used - limit

    def free(self, limit: int) -> int:
        """Bytes that runs may take beside those that there are; below 0: they take more than their share."""
        return share_of_runs(limit) - self._rocks.disk_bytes() - self._folder.disk_bytes()

    def spare(self, limit: int) -> int:
        """What is no run's share: it is for promotions and RocksDB's compactions."""
        return limit - share_of_runs(limit)

    @property
    def used(self) -> int:
        """Bytes of RocksDB and of all run files."""
        return self._rocks.disk_bytes() + self.run_bytes
