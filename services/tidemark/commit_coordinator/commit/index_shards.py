"""Whether the record index still has the number of shards that Tidemark's topics are made for.

A key's shard is its hash modulo the number of shards, and a lane is some of them: rows that are routed and
tagged name their shard, tombstones lie by lane. Hudi fixes the number when it builds an index. Another engine
that builds it anew (after a restore, or after somebody dropped it) may give it another number.

Example: of 4 shards key k is in shard 3. A restore of Hudi's builds the index anew, with 10 shards, and k
is in shard 7 now. What was routed to shard 3 would not be found there: an update would become an insert, and
k had two rows.

So a coordinator's claim names the number. A start with another one is refused, and a coordinator that runs
stops before it tags, plans or decides anything by such an index.
"""

from __future__ import annotations

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.metadata_table.missing_index import check_shards
from tidemark.hudi_format.metadata_table.restored_index import newest_build
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Timeline

_COUNTS = "hoodie.metadata.global.record.level.index.min.filegroup.count and ….max.filegroup.count"


def check_number(topics: int, index: int) -> None:
    """Raises UnsupportedTableError where the index has another number of shards than the topics are made for,
    or none.

    ``topics``: 0 where no claim says it yet.
    """
    check_shards(index)
    if topics not in (0, index):
        raise UnsupportedTableError(
            f"the record index has {index} shards, and Tidemark's topics are made for {topics}: another "
            "engine built it anew. Keys would be looked for in wrong shards, and updates would double rows",
            f"With Hudi on Spark drop the record index and build it anew with {_COUNTS} {topics} "
            '(docs/hudi-beside.md, "A record index with another number of shards")',
        )


class IndexShards:
    """Counts the shards whenever the index may have been built anew."""

    def __init__(self, storage: Storage, topics: int) -> None:
        self._storage = storage
        self._topics = topics
        self._build: str | None = None

    def check(self, metadata: Timeline, *, anew: bool = False) -> None:
        """Raises as `check_number`.

        Lists the index where its newest build is not the one of the last look, and with ``anew``: after what
        another engine did, a build may have been archived before it was seen.
        """
        build = newest_build(metadata)
        if anew or build != self._build:
            check_number(self._topics, MetadataTableSnapshot.load(self._storage).num_shards)
            self._build = build
