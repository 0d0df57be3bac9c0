"""Changes that are read more than once: from memory, where they fit into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table import RecordIndexEntries
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.index_assigner.index.gone_keys import Changes

# Bytes of Python's objects, which the sizes of columns do not tell: those of one part (the part, its arrays
# and its list), and those of one location in its list (a pair of names).
_PART_BYTES: Final = 2_048
_LOCATION_BYTES: Final = 256


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
        return _PART_BYTES + sum(
            part.nbytes + _PART_BYTES + len(part.locations) * _LOCATION_BYTES for part in self._kept
        )

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
            # Nothing is left to read. What reads them holds a snapshot with its files, which may be closed
            # long before these are forgotten.
            self._kept, self._read = kept, tuple


class SharedReads:
    """What was read of the log files of file groups, for the next unit that is filled from the same files.

    A group of a partitioned index has keys of all lanes, and each lane has a unit of its own of it. With four
    lanes its log files would be opened and decoded four times.
    """

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max``: of all groups together. Where one more does not fit, the others are forgotten."""
        self._bytes_max, self._bytes = bytes_max, 0
        # By slice and not by `ShardSnapshot`, which has a reader of the base file.
        self._of: dict[FileSlice, KeptChanges] = {}

    def log_parts(self, group: ShardSnapshot, bytes_max: int) -> KeptChanges:
        """The group's `log_parts`, read before or now. ``bytes_max``: as for `KeptChanges`."""
        return self._of.get(group.file_slice) or KeptChanges(group.log_parts, bytes_max)

    def keep(self, group: ShardSnapshot, changes: KeptChanges) -> None:
        """Keeps what `log_parts` returned, once it was read."""
        size = changes.nbytes
        if group.file_slice in self._of or size is None or size > self._bytes_max:
            return
        if self._bytes + size > self._bytes_max:
            self.forget()
        self._of[group.file_slice] = changes
        self._bytes += size

    def forget(self) -> None:
        """Forgets all. To be called before units are opened with another snapshot: other blocks of the same
        log files may count with it.
        """
        self._of.clear()
        self._bytes = 0
