"""Compares every row with every index entry, key by key.

1. Read the keys of all file slices, one slice in memory at a time, and group them by shard. Above a limit
   the keys are in temporary files, in the folder that TMPDIR names.
2. Compare shard after shard with the record index, one shard in memory at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import RecordLocation, shard_ids
from tidemark.table_verification.digests import Digests
from tidemark.table_verification.findings import Findings, Kind
from tidemark.table_verification.index_check import IndexCheck
from tidemark.table_verification.keys_by_shard import KeysByShard
from tidemark.table_verification.live_keys import LiveKeys

SAY_EVERY: Final = 50
Say = Callable[[str], None]


@dataclass(frozen=True)
class Compared:
    """``rows``, ``entries``: numbers of the whole table. ``file_groups``, ``shards``: how many were read
    for it. ``digests``: of the rows' keys, by file group.
    """

    rows: int
    entries: int
    file_groups: int
    shards: int
    digests: Digests


def compare_all(
    snapshot: MetadataTableSnapshot,
    slices: Sequence[FileSlice],
    live: LiveKeys | None,
    findings: Findings,
    say: Say,
) -> Compared:
    """Compares everything, and adds all differences to ``findings``. ``live`` may be None without slices."""
    digests = Digests()
    check = IndexCheck(slices, snapshot.num_shards, findings)
    with tempfile.TemporaryDirectory(prefix="tidemark-verify-") as folder:
        by_shard = KeysByShard(snapshot.num_shards, Path(folder))
        for number, file_slice in enumerate(slices):
            if number and number % SAY_EVERY == 0:
                say(f"read {number} of {len(slices)} file groups")
            keys = live.of(file_slice, findings) if live is not None else None
            if keys is not None:
                by_shard.add(keys, number)
                digests.add(RecordLocation(file_slice.partition_path, file_slice.file_id), keys)
        for shard in shard_ids(snapshot.num_shards):
            if shard and shard % SAY_EVERY == 0:
                say(f"compared {shard} of {snapshot.num_shards} shards")
            try:
                entries = snapshot.shard(shard).entries()
            except (HudiFormatError, OSError) as error:
                findings.add_one(Kind.UNREADABLE, f"shard {shard} of the record index: {error}")
                continue
            check.compare(shard, by_shard.rows_of(shard), entries)
    return Compared(check.rows, check.entries, len(slices), snapshot.num_shards, digests)
