"""What other writers' commits did to the table's column stats, as far as rows are lost by it.

* Hudi takes the columns of a write from that write's options alone. With the options that keep the stats of a
  table (`foreign_writers`) and other columns in them it changes no definition: the only trace is the records
  of its files. A file with a record of one column and none of another is left out of filters on both.
* Hudi takes the ranges of base files from Parquet footers, also of rows of ours that it rewrites, and those
  of logs of partial updates from rows that lack columns (`unranged_files`).
* A column of numbers that became one of texts has ranges of numbers in older files.

A commit's log files tell it at once. Where they are gone, or the commit is archived, as after a night without
a coordinator, the records of its files are looked for in the whole partition: files that are still there have
theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

from tidemark.hudi_format.column_ranges import ValueType
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.key_digest import DIGESTS_KEY
from tidemark.hudi_format.metadata_table.index_writes import instant_of, written_logs
from tidemark.hudi_format.metadata_table.log_records import log_entries, streamed_slice_entries
from tidemark.hudi_format.metadata_table.partitions.column_stats import (
    COLUMN_STATS,
    columns_left_out,
    file_keys,
)
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import ColumnStats, decode_stats
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH, StoredEntries
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.unranged_files import columns_not_updated, columns_without_bounds
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage, join_path, name_of
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, Timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata

_FOLDER: Final = join_path(METADATA_TABLE_PATH, COLUMN_STATS.name)
_FILES_AT_ONCE: Final = 8
"""Footers of 10 000 base files, of a compaction of Hudi's, are read while the table's lock is held."""
_NUMBERS: Final = frozenset(
    kind.name for kind in (ValueType.INT, ValueType.LONG, ValueType.FLOAT, ValueType.DOUBLE)
)


class _NoRange(NamedTuple):
    """Columns of one file: those that a block of partial updates lacks, and those without bounds in the
    footer of a base file.
    """

    not_updated: set[str]
    without_bounds: set[str]


def _columns_of_no_range(storage: Storage, path: str, columns: Sequence[str]) -> _NoRange:
    is_log, is_base = name_of(path).startswith("."), path.endswith(".parquet")
    return _NoRange(
        columns_not_updated(storage, path, columns) if is_log else set(),
        columns_without_bounds(storage, path, columns) if is_base and not is_log else set(),
    )


def _in_order(some: Collection[str], columns: Sequence[str]) -> str:
    return ", ".join(column for column in columns if column in some)


@dataclass
class _Records:
    """Records of files. `suspects`: the keys of those that say what Hudi makes of no range. `wrong`: columns
    with a range that loses rows whatever the rows are.
    """

    keys: list[pa.StringArray] = field(default_factory=list)
    suspects: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)

    def add(self, keys: pa.StringArray, values: Iterable[bytes], schema: str, source: str) -> None:
        self.keys.append(keys)
        for key, value in zip(keys.to_pylist(), values, strict=True):
            stats = decode_stats(value, schema, source)
            if stats.range.high != stats.range.high:
                self.wrong.add(stats.range.column)
            elif _may_be_of_no_range(stats):
                self.suspects.add(key)

    def faults(self, storage: Storage, files: Iterable[tuple[str, str]], columns: Sequence[str]) -> str:
        """What is wrong with them, "" for nothing. ``files``: (partition path, name) of those
        that they are of.
        """
        lacking = columns_left_out(pa.concat_arrays(self.keys), columns) if self.keys else []
        if lacking:
            return f"has none of {', '.join(lacking)}"
        suspects = list(self._suspects_of(files, columns)) if self.suspects else []
        with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="suspect-files") as pool:
            of_files = list(pool.map(lambda suspect: _columns_of_no_range(storage, *suspect), suspects))
        in_part = {column for found in of_files for column in found.not_updated}
        if in_part:
            return f"updates rows in part, and has no ranges of {_in_order(in_part, columns)}"
        wrong = (self.wrong & set(columns)).union(*(found.without_bounds for found in of_files))
        named = _in_order(wrong, columns)
        return f"has wrong ranges of {named} (apache/hudi#18754 and #18755)" if wrong else ""

    def _suspects_of(
        self, files: Iterable[tuple[str, str]], columns: Sequence[str]
    ) -> Iterator[tuple[str, list[str]]]:
        """The paths of files with such records, and the columns that these are of."""
        for partition, name in files:
            of_file = zip(columns, file_keys(partition, name, columns), strict=True)
            if asked := [column for column, key in of_file if key in self.suspects]:
                yield join_path(partition, name), asked


def commit_faults(
    storage: Storage, data: Timeline, metadata: Timeline, requested: str, columns: Sequence[str]
) -> str | None:
    """What is wrong with the column stats of the files that this commit made: ``columns`` of which they have
    no record, though they have some of others, or wrong ranges.

    Empty where nothing is, and where the commit has no column stats, as a rollback; None where the timelines
    (``data``, ``metadata``) and its log files do not tell any more. Raises CorruptFileError.
    """
    found, of_data = metadata.find(requested), data.find(requested)
    try:
        if of_data is not None and _is_by_rows(storage, of_data):
            return ""
    except FileMissingError:
        return None
    if found is None or of_data is None:
        return None
    if not found.is_completed or found.action is not Action.DELTA_COMMIT:
        return ""
    path, records = instant_path(found, METADATA_TABLE_ROOT), _Records()
    try:
        logs = written_logs(requested, storage.read(path), path, COLUMN_STATS.name)
        for part in log_entries(storage, _FOLDER, logs, lambda _: True):
            if part.values is not None:
                records.add(part.keys, part.values.to_pylist(), part.schema, part.source)
        files = _files_of(storage, instant_path(of_data)) if records.suspects else []
    except FileMissingError:
        return None
    return records.faults(storage, files, columns)


def living_faults(storage: Storage, instants: Collection[str], columns: Sequence[str]) -> str:
    """As `commit_faults`, of the files that these commits made and the table still has, by all records that
    there are. Memory holds their keys and values. Raises FileMissingError where files are cleaned away
    meanwhile (try again), CorruptFileError, and as `MetadataTableSnapshot.load`.
    """
    snapshot = MetadataTableSnapshot.load(storage)
    files = [
        (partition, name)
        for partition, names in snapshot.files.names().items()
        for name in names
        if instant_of(name) in instants
    ]
    wanted = [key for file in files for key in file_keys(*file, columns)]
    living = COLUMN_STATS.living(_all_entries(snapshot), pa.array(wanted, pa.string())) if wanted else {}
    records = _Records()
    if living:
        records.add(pa.array(list(living), pa.string()), living.values(), "", _FOLDER)
    return records.faults(storage, files, columns)


def _may_be_of_no_range(stats: ColumnStats) -> bool:
    """Whether the range may come of a footer without bounds: with 0.0 to 0.0 for those of numbers, united
    with the bounds of other row groups, or with nulls for all texts. A log that lacks the column has nulls
    for all values, too.
    """
    low, high, has_nulls = stats.range.low, stats.range.high, stats.range.nulls > 0
    if stats.file_name.startswith("."):
        return has_nulls
    if isinstance(low, float) and isinstance(high, float):
        return low <= 0.0 <= high
    return has_nulls and stats.range.type.kind is ValueType.STRING


def _is_by_rows(storage: Storage, instant: Instant) -> bool:
    """Whether it is a data compaction of Tidemark's, which takes ranges from the rows and not from footers.
    An archived one was seen: its action is open until then.
    """
    if instant.action is not Action.COMPACTION or not instant.is_completed:
        return False
    path = instant_path(instant)
    return DIGESTS_KEY in decode_commit_metadata(storage.read(path), path).extra_metadata


def _files_of(storage: Storage, path: str) -> list[tuple[str, str]]:
    """The files that this completed commit of the data table wrote."""
    stats = decode_commit_metadata(storage.read(path), path).write_stats
    return [
        (partition, name)
        for partition, some in stats.items()
        for stat in some
        for name in {name_of(stat.path), *(stat.log_files or ())}
    ]


def _all_entries(snapshot: MetadataTableSnapshot) -> Iterator[StoredEntries]:
    """With some blocks in memory at a time."""
    for file_slice in snapshot.slices.get(COLUMN_STATS.name, ()):
        yield from streamed_slice_entries(snapshot.storage, _FOLDER, file_slice, snapshot.validity.is_valid)


def columns_made_text(types: Mapping[str, str], schema: TableSchema) -> list[str]:
    """Those of the columns that were numbers, by their former ``types`` (`own_stats.types_of_stats`), and are
    strings in ``schema``. (Each other change of a type to string stops the stream.)

    Ranges of numbers stay in older files then, and Hudi's readers compare their texts: of the range 5 to 50
    they believe that it has no "10".
    """
    strings = {field.name for field in schema.arrow if pa.types.is_string(field.type)}
    return [name for name, kind in types.items() if kind in _NUMBERS and name in strings]
