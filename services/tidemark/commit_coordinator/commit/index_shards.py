"""Checks that the record index still has the number of shards that Tidemark's topics are made for.

A key's shard is its hash modulo the number of shards, and a lane is a fixed set of shards. Routed and tagged
rows name their shard, and tombstones are partitioned by lane. Hudi fixes the number when it builds an index.
If another engine builds it anew (after a restore, or after somebody dropped it) the number may differ.

Example: with 4 shards key k is in shard 3. A restore by Hudi builds the index anew with 10 shards, and now k
is in shard 7. Rows of k that were routed to shard 3 would not find it there: an update would become an
insert, and k would have two rows.

So a coordinator's claim names the number. A start with another number is refused, and a running coordinator
stops before it plans, decides or rewinds with such an index.

Of a partitioned index the number of a data partition's shards is read anew by each epoch, and no topic is
made for it. What must not change is that it is partitioned, because rows are identified by that.
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
    """Raises UnsupportedTableError when the index has no shards, or another number than the topics.

    ``topics``: the number of shards that the topics are made for, 0 when no claim has named it yet.
    """
    check_shards(index)
    if topics not in (0, index):
        raise UnsupportedTableError(
            f"the record index has {index} shards, and Tidemark's topics are made for {topics}: another "
            "engine built it anew. Keys would be looked up in wrong shards, and updates would double rows",
            f"With Hudi on Spark drop the record index and build it anew with {_COUNTS} {topics} "
            '(docs/hudi-beside.md, "A record index with another number of shards")',
        )


class IndexShards:
    """Checks the number of shards whenever the index may have been built anew."""

    def __init__(self, storage: Storage, topics: int, *, is_partitioned: bool = False) -> None:
        self._storage = storage
        self._is_partitioned = is_partitioned
        self._topics = topics
        self._build: str | None = None

    def check(self, metadata: Timeline, *, anew: bool = False) -> None:
        """Raises UnsupportedTableError as `check_number` does.

        Lists the index only if its newest build is not that of the last call. ``anew``: list it in any case,
        because a build of another engine may have been archived before it was seen.
        """
        build = newest_build(metadata)
        if anew or build != self._build:
            shards = MetadataTableSnapshot.load(self._storage).num_shards
            if self._is_partitioned:
                _check_partitioned(shards)
            else:
                check_number(self._topics, shards)
            self._build = build


def _check_partitioned(shards: int) -> None:
    """``shards``: of a global index that the table has now."""
    if shards:
        raise UnsupportedTableError(
            f"the record index was partitioned, and is a global one of {shards} shards now: another engine "
            "built it anew. A key may have a row in each of several partitions, and that index knows one",
            "With Hudi on Spark drop the record index and build the partitioned one anew "
            "(docs/partitioned-index.md)",
        )
