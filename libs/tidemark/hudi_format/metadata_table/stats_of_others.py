"""Whether another writer's commit has column stats of all columns that the table's stats have.

Hudi takes the columns of a write from that write's options alone. With the options that keep the stats of a
table (`foreign_writers`) and other columns in them it changes no definition: the only trace is the records of
its files. A file with a record of one column and none of another is left out of filters on both.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.metadata_table.index_writes import written_logs
from tidemark.hudi_format.metadata_table.log_records import log_entries
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS, columns_left_out
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Timeline


def columns_without_records(
    storage: Storage, metadata: Timeline, requested: str, columns: Sequence[str]
) -> list[str]:
    """Those of ``columns`` of which files of the commit have no record, though they have some of others.

    Empty where the commit has no column stats, as a rollback, and where its files are gone already: `tidemark
    verify` finds what is wrong with them then. ``metadata``: the metadata table's timeline. Raises
    CorruptFileError.
    """
    found = metadata.find(requested)
    if found is None or not found.is_completed or found.action is not Action.DELTA_COMMIT:
        return []
    path = instant_path(found, METADATA_TABLE_ROOT)
    folder = join_path(METADATA_TABLE_PATH, COLUMN_STATS.name)
    try:
        logs = written_logs(requested, storage.read(path), path, COLUMN_STATS.name)
        parts = list(log_entries(storage, folder, logs, lambda _: True))
    except FileMissingError:
        return []
    keys = [part.keys for part in parts if part.values is not None]
    return columns_left_out(pa.concat_arrays(keys), columns) if keys else []
