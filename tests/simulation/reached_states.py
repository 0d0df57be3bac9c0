"""What the random worlds of a whole run must have reached, however their seeds fall: counted over all
processes.

`test_world` notes per chunk of seeds what its worlds reached; `conftest` adds it up and fails a run of all
chunks that misses a state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

REACHED: Final = "reached"
FIXED_SEEDS_FILE: Final = Path(__file__).with_name("fixed_seeds.txt")
"""One a line, written by `choose_seeds`."""
FIXED_SEEDS: Final = tuple(map(int, FIXED_SEEDS_FILE.read_text(encoding="utf-8").split()))
"""The worlds of these seeds are to reach each required state together, whatever the commit."""
CHUNK: Final = 10
CHUNKS: Final = tuple(FIXED_SEEDS[first : first + CHUNK] for first in range(0, len(FIXED_SEEDS), CHUNK))
REQUIRED: Final = frozenset({
    "rewind",
    "void",
    "transaction that does not count",
    "lost to a commit",
    "range of several batches",
    "lane stands still",
    "input skipped",
    "tombstone ended",
    "commit, partitioning shard",
    "commit, partition none",
    "commit, partition two",
    "commit, composite key",
    "commit, several topics",
    "commit, format avro",
    "commit, format protobuf",
    "commit, format debezium-json",
    "commit, format debezium-avro",
    "commit, grown schema",
    "hot eviction",
    "RocksDB read after an eviction",
    "answered by a run file",
    "index base of several blocks",
    "index base read in part",
    "takeover between our two commits",
    "takeover of a planned epoch",
    "takeover of a decided epoch",
    "takeover of an attempt by another writer",
    "takeover of a lane with uncommitted rows",
    "reader ended by a deadly record",
    "lane stopped by a deadly record",
    "commit beside a lane with a deadly record",
    "readers' deaths remembered by the next coordinator",
    "epochs begins earlier again",
    "ledger begins earlier again",
    "data begins earlier again",
    "foreign waits until clocks agree",
    "foreign insert",
    "foreign insert-into",
    "foreign update",
    "foreign delete",
    "foreign move",
    "foreign begin",
    "foreign finish over our commit",
    "foreign half in an attempt",
    "foreign rollback in an attempt",
    "foreign run-compaction over our commit",
    "foreign compact in an attempt",
    "foreign compact-index in an attempt",
    "foreign clean",
    "foreign archive in an attempt",
    "foreign overwrite in an attempt",
    "foreign drop in an attempt",
    "foreign run-clustering in an attempt",
    "foreign savepoint",
    "foreign insert in an attempt",
    "foreign insert-into in an attempt",
    "foreign update in an attempt",
    "foreign delete in an attempt",
    "foreign move in an attempt",
    "foreign clean in an attempt",
    "foreign column in an attempt",
    "foreign restore",
    "foreign restore in an attempt",
    "our commit after a foreign restore",
    "foreign rollback-own",
    "rollback of its own pending write",
    "foreign plan-clustering in an attempt",
    "foreign run-clustering over our commit",
    "foreign run-clean over our commit",
    "foreign compact-index over our commit",
    "foreign fail-compaction",
    "foreign fail-clustering",
    "foreign fail-compact-index",
    "foreign rollback-service",
    "foreign service rolled back",
    "index entry left behind",
    "index entry left behind, replacecommit archived",
    "our insert over an index entry left behind",
    "delete of a key whose index entry was left behind",
    "foreign commit below what was there",
    "foreign commit not seen by who claims",
    "record of column stats",
    "merged record of column stats",
    "null in column stats",
    "foreign stats in an attempt",
    "entry of a secondary index",
    "null in a secondary index",
    "value too long for the index",
    "foreign build",
    "foreign build in an attempt",
    "index built anew",
    "waits until an index is taken out",
    "index create is done",
    "index create is killed",
    "index drop is done",
    "index drop is killed",
    "index repair is done",
    "partition begun by us",
    "partition begun by another engine",
    "key in several partitions",
    "delete without a partition",
    "part of the index closed by least use",
    "groups that were published and taken back",
})  # fmt: skip


class ReachedStates:
    """Adds up the properties of the chunks' reports."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self._chunks = 0

    def note(self, properties: Iterable[tuple[str, object]]) -> None:
        """One report's properties."""
        for name, value in properties:
            if name == REACHED and isinstance(value, Mapping):
                self.counts.update({str(state): int(count) for state, count in value.items()})
                self._chunks += 1

    def missing(self) -> list[str]:
        """States that no world reached; none where not all chunks ran."""
        if self._chunks < len(CHUNKS):
            return []
        return sorted(state for state in REQUIRED if not self.counts[state])
