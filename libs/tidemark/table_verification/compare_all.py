"""Every row against every index entry, key by key: shard after shard, one file slice or shard in memory at a
time (keys wait in temporary files above a limit, in the folder that TMPDIR names).
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
    """`rows` and `entries` of the whole table, `file_groups` and `shards` that were read for it. `digests`:
    the rows' keys by file group.
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
    """Adds every difference to `findings`. `live` may be missing when there are no slices."""
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
