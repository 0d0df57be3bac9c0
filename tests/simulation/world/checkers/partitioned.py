"""A record index that is divided by data partition, by Hudi's rules: which file group has a key, which groups
readers pass over. And the lane of a row in such a table, by ARCHITECTURE.md's rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from tests.hudi_rules.slices import begins_with_uncommitted, groups_of
from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.layout import Layout
from tests.simulation.world.checkers.merged import DataFile, Merged
from tests.simulation.world.checkers.timelines import Place

_FILE_ID: Final = re.compile(r"^record-index-(.*)-(\d{4,})-0$")


class IndexGroup(NamedTuple):
    """A file group of the index: of which data partition, and its number there."""

    path: str
    shard: int


def index_group(file_id: str) -> IndexGroup | None:
    """``record-index-d1%2Fz1-0002-0``: the group 2 of the partition ``d1/z1``."""
    found = _FILE_ID.match(file_id)
    return None if found is None else IndexGroup(unquote(found[1]), int(found[2]))


def shards_of(file_ids: Iterable[str]) -> dict[str, int]:
    """Data partition -> how many groups it has. The number is written nowhere else."""
    shards: dict[str, int] = {}
    for group in filter(None, map(index_group, file_ids)):
        shards[group.path] = shards.get(group.path, 0) + 1
    return shards


def shard_of(record_key: str, shards: int) -> int:
    """The number of the group in which Hudi looks a key up, among those of its partition."""
    return abs(java_hash(record_key)) % shards


def lane_of(path: str, record_key: str, lanes: int) -> int:
    """The lane of a row."""
    return (abs(java_hash(record_key)) + abs(java_hash(path))) % lanes


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """`String.hashCode`."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


def hidden_groups(names: Collection[str], counts: Callable[[str], bool]) -> set[str]:
    """File ids of the groups whose first log file is of an instant that does not count: readers see nothing
    of them, and a write of Hudi's into their partition fails. ``names``: of all files of the index.
    """
    groups: Mapping[tuple[str, str], list[str]] = groups_of({"": names})
    return {file_id for (_, file_id), files in groups.items() if begins_with_uncommitted(files, counts)}


def partitioned_entries(
    shards: Merged, entries: Callable[[DataFile], Iterable[tuple[str, Any]]], layout: Layout
) -> dict[str, Place]:
    """Where the index says that rows live. Hudi looks a key up in one group of one partition, so what another
    group has of it is nothing. ``entries``: of a file, (key, (value, schema)), None for a delete.
    """
    numbers = shards_of(file_id for (_, file_id), _ in shards)
    index: dict[str, Place] = {}
    for (_, file_id), files in shards:
        group = index_group(file_id)
        assert group is not None, f"{file_id} is no file group of a partitioned index"
        for key, value in (each for file in files for each in entries(file)):
            if shard_of(key, numbers[group.path]) != group.shard:
                continue
            identity = layout.identity(group.path, key)
            if value is None:
                index.pop(identity, None)
            else:
                index[identity] = decode.index_place(*value)
    return index


def identity_in(file_id: str, key: str, layout: Layout) -> str:
    """The identity of the row of which an entry of this group speaks."""
    group = index_group(file_id) if layout.by_partition else None
    return layout.identity(group.path, key) if group is not None else key
