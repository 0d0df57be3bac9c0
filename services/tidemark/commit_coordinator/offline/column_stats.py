"""Gives a table column stats, made from its rows. No service may run; other engines may.

1. Scan the files without the table's lock, which takes as long as reading the columns does.
2. Under the lock: scan what was committed meanwhile, and make the partition
   (`metadata_table/stats_creation.py`).

Killed anywhere, it leaves the table without column stats; repeated, it begins anew. An epoch that was planned
before and is committed behind it has no records of its files: readers leave those out by no filter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark.commit_coordinator.offline.adoption import table_lock
from tidemark.commit_coordinator.offline.progress import Progress
from tidemark.commit_coordinator.opening.table_open import read_table
from tidemark.config import TableConfigFile
from tidemark.hudi_format.column_stats_scan import ColumnStatsScan
from tidemark.hudi_format.metadata_table.stats_creation import StatsFailpoint
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.validation import without_stats
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource


@dataclass(frozen=True)
class CreatedStats:
    """`columns`: the user's. `files`: of how many files the rows were read. `records`: how many were
    written.
    """

    columns: Sequence[str]
    files: int
    records: int


def create_column_stats(
    config: TableConfigFile,
    clock: Clock,
    ids: IdSource,
    columns: Sequence[str],
    say: Callable[[str], None],
    hit: Callable[[StatsFailpoint], None] = lambda place: None,
) -> CreatedStats:
    """Makes column stats of these columns in place of those that are there, if any.

    Raises SchemaError for columns that can have none, AdoptionError where a coordinator left its lock, and as
    `read_table` and `ColumnStatsScan`.
    """
    storage = open_storage(config.table.path)
    opened = read_table(config, storage, None, without_stats)
    scan = ColumnStatsScan(storage, opened.config, opened.schema, columns)
    progress = Progress(clock, say, "files")
    scan.scan(progress.scanned)
    with table_lock(storage, clock, ids, ends_terms=False):
        scan.scan()
        records = scan.create(clock, hit)
    return CreatedStats(columns, scan.files, records)
