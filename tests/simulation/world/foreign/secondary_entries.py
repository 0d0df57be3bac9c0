"""Entries of the secondary index, as the engine makes them
(`tests.hudi_rules.value_entries`), in the file groups that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from tests.hudi_rules.slices import parse_data_file
from tests.hudi_rules.value_entries import escaped, group_of, value_part
from tests.simulation.world.checkers.model import Row
from tests.simulation.world.checkers.secondary import NAME
from tidemark.hudi_format.metadata_table.delta_commit import publish_log
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SecondaryChanges,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.unfenced import Unfenced

FOLDER: Final = f".hoodie/metadata/{NAME}"
Entry = tuple[str, str]
"""What all entries of a value begin with, and the key's part."""


def entries_of(column: str, rows: Mapping[str, Row]) -> set[Entry]:
    """One for each row."""
    return {(value_part(row.value(column)), escaped(key)) for key, row in rows.items()}


def builds(storage: Any) -> set[str]:
    """The instants that built the index which is there."""
    files = map(parse_data_file, storage.file_names(FOLDER))
    return {file.instant for file in files if file is not None and file.instant < "1"}


def changed_logs(
    storage: Any, instant: str, column: str, before: Mapping[str, Row], changes: Mapping[str, Row | None]
) -> list[MetadataLogFile]:
    """The log files of a commit that changes these rows, published."""
    was = entries_of(column, {key: before[key] for key in changes if key in before})
    now = entries_of(column, {key: row for key, row in changes.items() if row is not None})
    groups = len({file.file_id for file in map(parse_data_file, storage.file_names(FOLDER)) if file})
    return logs_of(storage, instant, now - was, was - now, groups)


def logs_of(
    storage: Any, instant: str, puts: Iterable[Entry], deletes: Iterable[Entry], groups: int
) -> list[MetadataLogFile]:
    """The log files with these entries, published."""
    found: dict[int, tuple[list[str], list[str]]] = {}
    for entries, place in ((puts, 0), (deletes, 1)):
        for prefix, key in sorted(entries):
            found.setdefault(group_of(prefix, groups), ([], []))[place].append(prefix + key)
    logs = []
    for group, (put, deleted) in sorted(found.items()):
        changes = SecondaryChanges(pa.array(put, pa.string()), pa.array(deleted, pa.string()))
        log, data = SecondaryIndexPartition(NAME).log_file(changes, instant, ShardId(group))
        publish_log(Unfenced(storage), log, data)
        logs.append(log)
    return logs
