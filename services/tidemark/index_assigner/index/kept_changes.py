"""Changes of a shard that are read more than once: from memory, where they fit into it."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark.hudi_format.metadata_table import RecordIndexEntries
from tidemark.index_assigner.index.gone_keys import Changes


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
