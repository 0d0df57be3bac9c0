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
made for it. What must not change is that it is partitioned, because rows are identified by that. A claim
names no number there; the name of the lane function in the table's folder says what the topics are made for.
"""

from __future__ import annotations

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import IndexKind, read_record_index_kind
from tidemark.hudi_format.metadata_table.missing_index import check_shards
from tidemark.hudi_format.metadata_table.restored_index import newest_build
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.partitioned_lanes import LANE_FUNCTION_PATH
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


def check_kind(storage: Storage, topics: int) -> None:
    """Raises UnsupportedTableError when the topics are made for a record index of the other kind than the
    table's: a row's lane, and what identifies it, follow from the kind. ``topics``: as in `check_number`.
    """
    kind = read_record_index_kind(storage)
    if kind is IndexKind.PARTITIONED and topics:
        raise _other_kind(kind, f"a global index of {topics} shards")
    if kind is IndexKind.GLOBAL and storage.exists(LANE_FUNCTION_PATH):
        raise _other_kind(kind, f"a partitioned one ({storage.base_uri}/{LANE_FUNCTION_PATH})")


def _other_kind(kind: IndexKind, of_topics: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"the record index is {kind}, and Tidemark's topics are made for {of_topics}: another engine built "
        "the index anew. Rows in the topics would be looked up in wrong lanes, and updates would double rows",
        f"With Hudi on Spark drop the record index and build one of the former kind; or keep the {kind} one, "
        "if no key has rows in several partitions, set table.index.kind, and begin new topics with `tidemark "
        "table adopt --new-ledger` (docs/partitioned-index.md)",
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
            snapshot = MetadataTableSnapshot.load(self._storage)
            shards = snapshot.num_shards
            if self._is_partitioned:
                _check_partitioned(shards)
            elif snapshot.is_partitioned_index:
                raise _other_kind(IndexKind.PARTITIONED, f"a global index of {self._topics} shards")
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
