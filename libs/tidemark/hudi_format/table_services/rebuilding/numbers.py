"""Whether a record index can be rebuilt with a number of shards, and what that costs. Pure.

A key's shard is h mod shards, where h is its hash, and its lane is shard mod lanes. The number of lanes is
fixed while a ledger lives: topics have a partition for each lane. So a key must stay in its lane when the
number of shards changes. It does if both numbers are multiples of the number of lanes, since then the lane is
h mod lanes, whatever the shards. Example with 8 lanes: 8 shards can become 16, 24 or 80, and a key with the
hash 1003 stays in lane 3 (shard 3 of 8, 11 of 16, 19 of 24, 43 of 80). With 20 shards the key with the hash
1021 would be in shard 1, and would move from lane 5 to lane 1.

The number of shards cannot get smaller: Hudi counts the file groups that the index's folder shows, and no
single step hides a file group and shows new base files of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.metadata_table.partitions.record_index import SHARDS_MAX

SHARD_ENTRIES_MAX: Final = 10_000_000
"""Entries of a shard above which look-ups, loads and compactions take long: `status` warns."""
_REBUILD: Final = "tidemark table rebuild-index --shards"


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a rebuild takes, about: ``entries`` of the index, ``index_bytes`` of its new base files in the
    table's folder, ``scratch_bytes`` of disk for sorting. Both are needed at once; the former index's files
    stay until they are cleaned.
    """

    entries: int
    index_bytes: int
    scratch_bytes: int


def check_shards(former: int, wanted: int, lanes: int) -> None:
    """Raises UnsupportedTableError for a number of shards that the index cannot get."""
    if wanted > SHARDS_MAX:
        raise UnsupportedTableError(
            f"--shards {wanted}: a record index has at most {SHARDS_MAX}", "Choose fewer shards"
        )
    if wanted < former:
        raise UnsupportedTableError(
            f"--shards {wanted}: the record index has {former}, and cannot get fewer: no single step can "
            "hide file groups of it from Hudi's readers",
            f"Choose {former} or more, or drop the index and build it anew with Hudi on Spark, and begin a "
            'new ledger (docs/hudi-beside.md, "A record index with another number of shards")',
        )
    if wanted == former:
        return
    if former % lanes:
        raise UnsupportedTableError(
            f"the record index has {former} shards, which is no multiple of {lanes} lanes: with another "
            "number of shards keys would change their lanes",
            f"Choose {former} shards, or begin a ledger with another table.index.lanes first (`tidemark "
            "table adopt --new-ledger`, docs/changes.md)",
        )
    if wanted % lanes:
        raise UnsupportedTableError(
            f"--shards {wanted} is no multiple of {lanes} lanes (table.index.lanes): keys would change their "
            "lanes",
            f"Choose {_multiple_near(former, wanted, lanes)}",
        )


def enough_shards(former: int, lanes: int, entries: int) -> int:
    """A number of shards that `check_shards` permits, at which a shard has at most half of
    `SHARD_ENTRIES_MAX`; ``former`` where no more can be had.
    """
    if former % lanes:
        return former
    needed = max(former, -(-2 * entries // SHARD_ENTRIES_MAX))
    return min(-(-needed // lanes) * lanes, SHARDS_MAX // lanes * lanes)


def large_shards_text(shards: int, largest: int, large: int, wanted: int) -> str:
    """The warning that shards have too many entries. ``largest``: entries of the largest, ``large``: how
    many are above the limit, ``wanted``: as `enough_shards` returns.
    """
    text = (
        f"{large} of {shards} shards of the record index have more than {SHARD_ENTRIES_MAX:,} entries (the "
        f"largest {largest:,}): cold starts and compactions of the index take long"
    )
    if wanted <= shards:
        return text
    return f"{text}. Stop all services, then `{_REBUILD} {wanted}` (docs/rebuild-index.md)"


def large_partition_text(shards: int, largest: int, large: int, partition: str) -> str:
    """`large_shards_text` of a partitioned index, whose shards are counted in all data partitions.
    ``partition``: of the largest shard.
    """
    return (
        f"{large} of {shards} shards of the record index, in all data partitions together, have more than "
        f"{SHARD_ENTRIES_MAX:,} entries (the largest {largest:,}, in partition {partition!r}): cold starts "
        "and compactions of the index take long. Raise table.index.shards, which counts for partitions that "
        'are new (docs/partitioned-index.md, "More shards")'
    )


def _multiple_near(former: int, wanted: int, lanes: int) -> str:
    below, above = wanted // lanes * lanes, -(-wanted // lanes) * lanes
    found = [str(number) for number in (below, above) if former <= number <= SHARDS_MAX]
    return " or ".join(found) or f"{former}"
