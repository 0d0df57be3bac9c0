"""Makes secondary indexes from the rows of a table, makes them anew, and drops them. No service may run;
other engines may.

1. Scan the rows without the table's lock, and sort the entries into files on this machine. Then read what was
   committed meanwhile, in rounds, until a round finds little.
2. Under the lock: scan what was committed meanwhile, copy the files into the table, and switch the index on
   (`metadata_table/secondary_creation.py`).

Killed anywhere, it leaves a table without the index, or one that is refused until the command is repeated.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.commit_coordinator.offline.adoption import AdoptionError, table_lock
from tidemark.commit_coordinator.offline.progress import Progress
from tidemark.commit_coordinator.opening.table_open import read_table
from tidemark.config import TableConfigFile
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import IndexKind, read_index_definitions
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SECONDARY_PREFIX,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.metadata_table.secondary_admission import beside_partitioned, without_secondary
from tidemark.hudi_format.metadata_table.secondary_creation import (
    Hit,
    create_secondary_index,
    drop_secondary_index,
    secondary_partition,
)
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.secondary_index_scan import SecondaryIndexScan
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.timeline import load_timeline
from tidemark.hudi_format.validation import UNSAFE_PENDING
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource

_HELD_BYTES: Final = 128 << 20


@dataclass(frozen=True)
class CreatedIndex:
    """`partition`: the index's in the metadata table. `entries`: of how many rows it was made at first."""

    partition: str
    column: str
    groups: int
    entries: int


def create_index(
    config: TableConfigFile,
    clock: Clock,
    ids: IdSource,
    name: str,
    column: str,
    say: Callable[[str], None],
    hit: Hit = lambda place: None,
) -> CreatedIndex:
    """Makes the secondary index `name` of a column. One of this name and column that is there, whole or half
    made, is made anew.

    Raises AdoptionError where a coordinator left its lock, where a write is pending, and for an index of this
    name on another column; SchemaError for a column that can have none, UnsupportedTableError, and as
    `read_table`.
    """
    partition, storage = secondary_partition(name), open_storage(config.table.path)
    _check_name(storage, partition, column)
    return _make(config, storage, clock, ids, partition, column, say, hit)


def rebuild_index(
    config: TableConfigFile,
    clock: Clock,
    ids: IdSource,
    name: str,
    say: Callable[[str], None],
    hit: Hit = lambda place: None,
) -> CreatedIndex:
    """Makes the secondary index `name`, which is there, anew. Raises AdoptionError where it is not, and as
    `create_index`.
    """
    partition, storage = secondary_partition(name), open_storage(config.table.path)
    column = _column_of(storage, partition)
    if column is None:
        raise AdoptionError(f"the table has no secondary index {name}: `tidemark index create` makes one")
    return _make(config, storage, clock, ids, partition, column, say, hit)


def drop_index(
    config: TableConfigFile, clock: Clock, ids: IdSource, name: str, hit: Hit = lambda place: None
) -> bool:
    """Removes the secondary index, whole or half made; returns whether anything of it was there. Raises
    AdoptionError where a coordinator left its lock, UnsupportedTableError while a compaction of it is
    pending.
    """
    partition, storage = secondary_partition(name), open_storage(config.table.path)
    with table_lock(storage, clock, ids, ends_terms=False):
        listed = partition.name in read_table_config(storage).metadata_partitions
        is_there = listed or partition.name in read_index_definitions(storage)
        drop_secondary_index(storage, partition, hit)
    return is_there


def _make(
    config: TableConfigFile,
    storage: Storage,
    clock: Clock,
    ids: IdSource,
    partition: SecondaryIndexPartition,
    column: str,
    say: Callable[[str], None],
    hit: Hit,
) -> CreatedIndex:
    opened = read_table(config, storage, None, without_secondary)
    if opened.kind is IndexKind.PARTITIONED:
        raise beside_partitioned(partition.name)
    with tempfile.TemporaryDirectory(prefix="tidemark-index-") as folder:
        scan = SecondaryIndexScan(storage, opened.config, opened.schema, column, Path(folder), _HELD_BYTES)
        scan.scan(Progress(clock, say, "file groups").scanned)
        say("sorting the entries")
        scan.prepare()
        scan.catch_up()
        with table_lock(storage, clock, ids, ends_terms=False):
            _check_nothing_pending(storage)
            snapshot = scan.scan()
            content = scan.content()
            times = InstantGenerator(clock)
            times.observe(snapshot.data_timeline.times() + snapshot.metadata_timeline.times())
            create_secondary_index(storage, partition, column, content, times.next, hit)
    return CreatedIndex(partition.name, column, content.groups, scan.entries)


def _check_name(storage: Storage, partition: SecondaryIndexPartition, column: str) -> None:
    known = _column_of(storage, partition)
    if known is not None and known != column:
        raise AdoptionError(
            f"{partition.name} is of the column {known}: drop it with `tidemark index drop` first, or choose "
            "another name"
        )
    others = {name for name in read_index_definitions(storage) if name.startswith(SECONDARY_PREFIX)} - {
        partition.name
    }
    if others and read_table_config(storage).is_merge_on_read:
        raise UnsupportedTableError(
            f"the table has {min(others)}, and Hudi's writers maintain only one secondary index of a "
            "MERGE_ON_READ table",
            "Drop that one first",
        )


def _column_of(storage: Storage, partition: SecondaryIndexPartition) -> str | None:
    fields = read_index_definitions(storage).get(partition.name, {}).get("sourceFields") or []
    return str(fields[0]) if fields else None


def _check_nothing_pending(storage: Storage) -> None:
    pending = load_timeline(storage).pending(*UNSAFE_PENDING)
    if pending:
        instant = min(pending, key=lambda one: one.requested)
        raise AdoptionError(
            f"{instant.action.value} {instant.requested} is pending, and the index would miss its rows: let "
            "its writer finish; what a coordinator left `tidemark recover` ends"
        )
