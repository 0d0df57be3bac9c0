"""Proves that record index and rows agree, from the files alone (guarantee G2; and G1's "no key doubled").

1. files partition = storage listing of committed files,
2. every live key once, with one index entry that names its partition and file group; no entry too many,
3. epochs and positions of our commits continue, and both commits of an instant say the same.

The table may be written meanwhile: everything is judged as of one snapshot, and what vanished under it (a
cleaner) is looked at again with a newer one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from hudi_format.commit.instants import instant_path
from hudi_format.errors import HudiFormatError
from hudi_format.file_group.base_file import PARTITION_PATH, RECORD_KEY
from hudi_format.file_group.slice_reader import read_slice
from hudi_format.file_group.slices import FileSlice
from hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from hudi_format.ordering import table_ordering
from hudi_format.schema import TableSchema
from hudi_format.storage.base import Storage
from hudi_format.table_config import TableConfig, read_table_config
from hudi_format.timeline import Timeline, load_timeline
from hudi_format.timeline.avro_records import SCHEMA_KEY, decode_commit_metadata
from tidemark_cli.errors import CliError
from tidemark_cli.verify.commit_check import CommitCounts, check_commits
from tidemark_cli.verify.committed_files import check_listing, current_slices, list_committed
from tidemark_cli.verify.findings import EXAMPLES_MAX, Findings, Kind
from tidemark_cli.verify.index_check import IndexCheck
from tidemark_cli.verify.keys_by_shard import KeysByShard

_TRIES_MAX: Final = 3
_SAY_EVERY: Final = 200
_MOVING: Final = frozenset({Kind.UNREADABLE, Kind.FILE_MISSING, Kind.FILE_NOT_LISTED})


@dataclass(frozen=True)
class Verification:
    """What was compared, and what was found. `ignored_files`: data files of instants that never committed."""

    path: str
    as_of: str | None
    rows: int
    entries: int
    shards: int
    partitions: int
    file_groups: int
    files: int
    ignored_files: int
    commits: CommitCounts
    findings: Findings

    @property
    def agrees(self) -> bool:
        """Whether no difference was found."""
        return not self.findings.counts


def verify_table(storage: Storage, say: Callable[[str], None]) -> Verification:
    """Reads the whole table once. `say` hears progress.

    Raises FileMissingError (no table), CorruptFileError, UnsupportedTableError, CliError (partitioned index).
    """
    for _ in range(_TRIES_MAX):
        config = read_table_config(storage)
        snapshot = MetadataTableSnapshot.load(storage)
        result = _verify_snapshot(storage, config, snapshot, say)
        moved = load_timeline(storage) != snapshot.data_timeline
        if not (moved and _MOVING & result.findings.counts.keys()):
            break
        say("the table changed meanwhile: looking again")
    return result


def _verify_snapshot(
    storage: Storage, config: TableConfig, snapshot: MetadataTableSnapshot, say: Callable[[str], None]
) -> Verification:
    if snapshot.is_partitioned_index:
        raise CliError("the table's record index is partitioned; this release verifies the global one")
    findings = Findings()
    timeline = snapshot.data_timeline
    files = list_committed(storage, timeline)
    check_listing(files, snapshot.files, timeline, findings)
    slices = current_slices(storage, timeline, files)
    say(f"{files.count} committed files, {len(slices)} file groups, {snapshot.num_shards} shards")
    check = IndexCheck(slices, snapshot.num_shards, findings)
    with tempfile.TemporaryDirectory(prefix="tidemark-verify-") as folder:
        keys = KeysByShard(snapshot.num_shards, Path(folder))
        _read_rows(storage, config, timeline, slices, keys, findings, say)
        for shard in range(snapshot.num_shards):
            try:
                entries = snapshot.shard(shard).entries()
            except (HudiFormatError, OSError) as error:
                findings.add_one(Kind.UNREADABLE, f"shard {shard} of the record index: {error}")
                continue
            check.compare(shard, keys.rows_of(shard), entries)
    commits = check_commits(storage, timeline, snapshot.metadata_timeline, findings)
    return Verification(
        path=storage.base_uri,
        as_of=timeline.latest_completion(),
        rows=check.rows,
        entries=check.entries,
        shards=snapshot.num_shards,
        partitions=len(files.files),
        file_groups=len(slices),
        files=files.count,
        ignored_files=files.ignored,
        commits=commits,
        findings=findings,
    )


def _read_rows(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    slices: Sequence[FileSlice],
    keys: KeysByShard,
    findings: Findings,
    say: Callable[[str], None],
) -> None:
    """Sorts the keys of all live rows into shards; one file slice in memory at a time."""
    if not slices:
        return
    schema = _schema(storage, config, timeline)
    mode, ordering = table_ordering(config, schema)
    for number, file_slice in enumerate(slices):
        if number and number % _SAY_EVERY == 0:
            say(f"read {number} of {len(slices)} file groups")
        try:
            rows = read_slice(storage, file_slice, schema, mode, ordering, [RECORD_KEY, PARTITION_PATH])
        except (HudiFormatError, OSError) as error:
            findings.add_one(Kind.UNREADABLE, f"{file_slice.partition_path} {file_slice.file_id}: {error}")
            continue
        _check_partition(rows, file_slice, findings)
        keys.add(rows.column(RECORD_KEY), number)


def _check_partition(rows: pa.Table, file_slice: FileSlice, findings: Findings) -> None:
    elsewhere = pc.fill_null(pc.not_equal(rows.column(PARTITION_PATH), file_slice.partition_path), True)
    if not pc.any(elsewhere).as_py():
        return
    wrong = rows.filter(elsewhere)
    findings.add(
        Kind.ROW_IN_WRONG_PARTITION,
        wrong.num_rows,
        (
            f"{row[RECORD_KEY]}: says {row[PARTITION_PATH]!r}, lies in {file_slice.partition_path!r}"
            for row in wrong.slice(0, EXAMPLES_MAX).to_pylist()
        ),
    )


def _schema(storage: Storage, config: TableConfig, timeline: Timeline) -> TableSchema:
    """Of the newest commit that carries one. Raises CliError when none does."""
    for instant in sorted(timeline.completed(), key=lambda each: str(each.completion), reverse=True):
        if not instant.action.is_write:
            continue
        path = instant_path(instant)
        if text := decode_commit_metadata(storage.read(path), path).extra_metadata.get(SCHEMA_KEY):
            return TableSchema.from_avro(text, config.name)
    if text := config.properties.get("hoodie.table.create.schema"):
        return TableSchema.from_avro(text, config.name)
    raise CliError(f"{storage.base_uri}: no commit of the active timeline carries the table's schema")
