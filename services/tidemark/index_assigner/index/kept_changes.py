"""Changes that are read more than once: from memory, where they fit into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidemark.hudi_format.metadata_table import RecordIndexEntries
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.index_assigner.index.gone_keys import Changes

# Of the objects of a part, and of what has the parts: small parts take more memory than their columns say.
_OBJECT_BYTES: Final = 2_048


class KeptChanges:
    """Changes, oldest first, which are kept while they are first read.

    A shard that is filled from 60 log files is asked for its deletes, then for its entries. Each log file
    costs milliseconds however few entries it has, so a second reading would take as long as the first.
    """

    def __init__(self, read: Changes, bytes_max: int) -> None:
        """``read``: reads them. Where they take more than ``bytes_max``, each reading is one of the files,
        with one part in memory at a time.
        """
        self._read, self._bytes_max = read, bytes_max
        self._kept: list[RecordIndexEntries] | None = None

    @property
    def nbytes(self) -> int | None:
        """Memory held, in bytes; None: nothing is kept."""
        if self._kept is None:
            return None
        return _OBJECT_BYTES + sum(part.nbytes + _OBJECT_BYTES for part in self._kept)

    def __call__(self) -> Iterator[RecordIndexEntries]:
        if self._kept is not None:
            yield from self._kept
            return
        kept, size = [], 0
        for part in self._read():
            size += part.nbytes
            if size <= self._bytes_max:
                kept.append(part)
            else:
                kept.clear()
            yield part
        if size <= self._bytes_max:
            self._kept = kept


class SharedReads:
    """What was read of the log files of file groups, for the next unit that is filled from the same files.

    A group of a partitioned index has keys of all lanes, and each lane has a unit of its own of it. With four
    lanes its log files would be opened and decoded four times.
    """

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max``: of all groups together. Where one more does not fit, the others are forgotten."""
        self._bytes_max, self._bytes = bytes_max, 0
        self._of: dict[ShardSnapshot, KeptChanges] = {}

    def log_parts(self, group: ShardSnapshot, bytes_max: int) -> KeptChanges:
        """The group's `log_parts`, read before or now. ``bytes_max``: as for `KeptChanges`."""
        return self._of.get(group) or KeptChanges(group.log_parts, bytes_max)

    def keep(self, group: ShardSnapshot, changes: KeptChanges) -> None:
        """Keeps what `log_parts` returned, once it was read."""
        size = changes.nbytes
        if group in self._of or size is None or size > self._bytes_max:
            return
        if self._bytes + size > self._bytes_max:
            self.forget()
        self._of[group] = changes
        self._bytes += size

    def forget(self) -> None:
        """Forgets all, because units are opened with another snapshot from now on."""
        self._of.clear()
        self._bytes = 0
