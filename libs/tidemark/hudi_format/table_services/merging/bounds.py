"""What a merge may use, and what it says about its work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidemark.hudi_format.column_ranges import ColumnRange
from tidemark.hudi_format.key_digest import EMPTY, Digest, added, key_digest
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.table_services.operations import MergeOutcome

MEMORY_MIN: Final = 32 << 20
# Arrow's columns of text and bytes have 32-bit offsets.
_HELD_MAX: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class MergeBounds:
    """`memory_bytes`: what a merge may take in all. `scratch`: an empty folder of the caller's, for what does
    not fit; the caller removes it.
    """

    memory_bytes: int
    scratch: Path

    @property
    def held_bytes(self) -> int:
        """How many bytes of changes are held before they go to disk. Sorting and decoding take about as much
        again, for a moment, and the output a few blocks.
        """
        return min(max(self.memory_bytes, MEMORY_MIN) // 4, _HELD_MAX)


@dataclass(slots=True)
class MergeCounts:
    """What a merge did. `size` is the new file's, in bytes; `log_records` counts the records of all log
    blocks that count, repeated keys included. The digest is of the file's keys.

    Of an index shard the digest's first number is that of its entries. The second is the sum of the hashes of
    the keys that came, minus that of those that went: of copied blocks nobody has seen the keys.

    `ranges`: those of the data file, where the table keeps column stats.
    """

    size: int = 0
    rows: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    log_records: int = 0
    digest: Digest = EMPTY
    ranges: Sequence[ColumnRange] = ()

    def outcome(
        self, ordinal: int, name: str, ticket: Ticket | None = None, stats: dict[str, bytes] | None = None
    ) -> MergeOutcome:
        """What a task reports of this merge."""
        return MergeOutcome(
            ordinal,
            name,
            self.size,
            self.rows,
            self.inserts,
            self.updates,
            self.deletes,
            self.log_records,
            *self.digest,
            ticket,
            stats or {},
        )

    def add_keys(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Counts rows of the new file into `rows` and the digest."""
        self.rows += len(keys)
        self.digest = added(self.digest, key_digest(keys))
