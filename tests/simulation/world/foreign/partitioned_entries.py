"""Entries of a record index that is divided by data partition, as the engine makes them by Hudi's rules.

A partition that is not in the list of partitions gets as many file groups as the engine's own setting says,
with a file of 80 bytes each; nobody looks whether there are some. How many a partition has is counted from
the files that are there, whatever became of their instants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tests.hudi_rules.slices import parse_data_file
from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.checkers.layout import Layout
from tests.simulation.world.checkers.partitioned import index_group, shard_of, shards_of
from tidemark.hudi_format.metadata_table.delta_commit import empty_log, publish_log
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    DELETED,
    RecordIndexEntries,
    write_record_index_log,
)
from tidemark.hudi_format.model import RecordLocation, ShardId, instant_to_ms
from tidemark.hudi_format.publication.unfenced import Unfenced

_INDEX: Final = "record_index"
_FOLDER: Final = f".hoodie/metadata/{_INDEX}"
_ESCAPED: Final = {"/": "%2F", "_": "%5F", "-": "%2D"}
_FIRST, _ENTRIES = "0-0-0", "0-7-7"
Places = Mapping[str, RecordLocation | None]


def groups_there(storage: Any) -> dict[str, int]:
    """Data partition -> how many groups it has."""
    found = filter(None, map(parse_data_file, storage.file_names(_FOLDER)))
    return shards_of({file.file_id for file in found})


def is_first_of_group(name: str) -> bool:
    """Whether a file has the name of those with which the groups of a partition begin."""
    return name.startswith(".record-index-") and name.endswith(f"_{_FIRST}")


def begin_groups(storage: Any, instant: str, new: Collection[str], shards: int) -> list[MetadataLogFile]:
    """The first files of the groups of partitions that are new, published."""
    data = empty_log(instant)
    logs = [
        _log(path, number, instant, _FIRST, len(data)) for path in sorted(new) for number in range(shards)
    ]
    for log in logs:
        publish_log(Unfenced(storage), log, data)
    return logs


def partition_logs(storage: Any, instant: str, places: Places, layout: Layout) -> list[MetadataLogFile]:
    """The log files with what becomes of these rows, published."""
    there = groups_there(storage)
    by_group: dict[tuple[str, int], dict[str, RecordLocation | None]] = {}
    for identity, place in places.items():
        path, key = layout.path_of(identity), layout.key_of(identity)
        by_group.setdefault((path, shard_of(key, there[path])), {})[key] = place
    logs = []
    for (path, number), found in sorted(by_group.items()):
        live = [each for each in found.values() if each is not None]
        ids = [DELETED if each is None else live.index(each) for each in found.values()]
        moments = [0 if each is None else instant_to_ms(instant) for each in found.values()]
        keys = pa.array(list(found), pa.string())
        entries = RecordIndexEntries(keys, np.array(ids, np.int32), live, np.array(moments, np.int64))
        data = write_record_index_log(entries, instant)
        log = _log(path, number, instant, _ENTRIES, len(data), len(live), len(found) - len(live))
        publish_log(Unfenced(storage), log, data)
        logs.append(log)
    return logs


def hidden_from_writers(look: Look, layout: Layout, keys: Iterable[str]) -> list[str]:
    """The groups in which these rows have their entries and of which Hudi finds no slice: its write fails."""
    if not layout.by_partition:
        return []
    paths, hidden = set(map(layout.path_of, keys)), look.reader.hidden(look.timeline, look.metadata)
    found = {file_id: index_group(file_id) for file_id in hidden}
    return sorted(file_id for file_id, group in found.items() if group is not None and group.path in paths)


def _log(
    path: str, number: int, instant: str, token: str, size: int, upserts: int = 0, deletes: int = 0
) -> MetadataLogFile:
    file_id = f"record-index-{''.join(_ESCAPED.get(each, each) for each in path)}-{number:04d}-0"
    name = f".{file_id}_{instant}.log.1_{token}"
    return MetadataLogFile(_INDEX, ShardId(number), file_id, name, size, upserts, deletes)
