"""Compares rows with index entries by digests, and reads only what changed since a verified state.

These files are read, whatever happened in between:

1. Every file group whose slice has other files than when its digest was made: its keys.
2. The log files that were added to a shard: their index changes. The entries that they replace are looked
   up in the shard's files of the verified state.
3. If any shard lost a file or got another base file (compaction, rollback), all shards.

While reading it is checked that each key hashes to its shard, that a file group has a key once, and that a
shard has a key once. With that, equal digests for every file group mean: each live key has one entry, the
entry names the key's file group, and no other entry exists.

Files that kept name and size are not read again: only a full run finds damage inside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow.compute as pc

from tidemark.hudi_format.errors import FileMissingError, HudiFormatError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.log_file import BlockType
from tidemark.hudi_format.metadata_table.log_records import read_log_blocks, stored_entries
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    RecordIndexEntries,
    decode_entries,
)
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import RecordLocation, ShardId, shard_ids
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.table_verification.compare_all import SAY_EVERY, Compared, Say
from tidemark.table_verification.digests import Digests
from tidemark.table_verification.findings import Findings
from tidemark.table_verification.live_keys import LiveKeys
from tidemark.table_verification.verified_state import ShardFiles, VerifiedGroup, VerifiedState


def compare_changed(
    snapshot: MetadataTableSnapshot,
    slices: Sequence[FileSlice],
    prints: Mapping[RecordLocation, str],
    live: LiveKeys,
    state: VerifiedState,
    say: Say,
) -> Compared | None:
    """Compares rows and index entries.

    Returns None when they differ, or something cannot be read: then a full comparison has to name the
    difference.
    """
    read = _row_digests(slices, prints, live, state.groups, say)
    if read is None:
        return None
    rows, groups_read = read
    try:
        changed = _changed_digests(snapshot, state)
        whole = _whole_digests(snapshot, say) if changed is None else None
    except (HudiFormatError, OSError):
        return None
    index = changed if changed is not None else whole
    if index is None or rows.differing(index):
        return None
    shards_read = 0 if changed is not None else snapshot.num_shards
    return Compared(rows.keys, index.keys, groups_read, shards_read, rows)


def _row_digests(
    slices: Sequence[FileSlice],
    prints: Mapping[RecordLocation, str],
    live: LiveKeys,
    groups: Mapping[RecordLocation, VerifiedGroup],
    say: Say,
) -> tuple[Digests, int] | None:
    """The digests of the present rows by file group, and how many file groups were read for them.

    None when a file group cannot be read, or has a key twice.
    """
    digests, read, wrong = Digests(), 0, Findings()
    for file_slice in slices:
        location = RecordLocation(file_slice.partition_path, file_slice.file_id)
        known = groups.get(location)
        if known is not None and known.fingerprint == prints[location]:
            digests.set(location, known.digest)
            continue
        read += 1
        if read % SAY_EVERY == 0:
            say(f"read {read} changed file groups")
        keys = live.of(file_slice, wrong)
        if keys is None or wrong.counts or pc.count_distinct(keys).as_py() != len(keys):
            return None
        digests.add(location, keys)
    return digests, read


def _changed_digests(snapshot: MetadataTableSnapshot, state: VerifiedState) -> Digests | None:
    """The state's digests, changed by the new log files of all shards.

    None when a shard changed in another way than by new log files.
    """
    if len(state.shards) != snapshot.num_shards:
        return None
    digests = Digests({location: group.digest for location, group in state.groups.items()})
    for number, before in enumerate(state.shards):
        if not _add_changes(snapshot, ShardId(number), before, digests):
            return None
    return digests


def _add_changes(
    snapshot: MetadataTableSnapshot, number: ShardId, before: ShardFiles, digests: Digests
) -> bool:
    shard = snapshot.shard(number)
    now = shard.file_slice
    if now.base_file != before.base or not set(before.logs) <= set(now.log_files):
        return False
    added = [name for name in now.log_files if name not in before.logs]
    if not added:
        return True
    try:
        blocks = read_log_blocks(snapshot.storage, RECORD_INDEX_FOLDER, added)
        if any(e.block.compacted_block_times or e.block.block_type is BlockType.COMMAND for e in blocks):
            return False
        keys = RecordIndexEntries.concat([decode_entries(stored_entries(e)) for e in blocks]).keys
        keys = keys.unique().sort()
        then = FileSlice(now.partition_path, now.file_id, before.base, now.base_instant, before.logs)
        storage, is_valid = snapshot.storage, snapshot.validity.is_valid
        old = ShardSnapshot(storage, RECORD_INDEX_FOLDER, then, is_valid, lambda _: None)
        taken, given = old.lookup(keys), shard.lookup(keys)
    except FileMissingError:
        return False
    if np.any(record_index_shard(keys, snapshot.num_shards) != number):
        return False
    digests.add_located(keys, taken.location_ids, taken.locations, sign=-1)
    digests.add_located(keys, given.location_ids, given.locations)
    return True


def _whole_digests(snapshot: MetadataTableSnapshot, say: Say) -> Digests | None:
    """The digests of all index entries; None when a key is twice in a shard, or in the wrong one."""
    digests = Digests()
    say(f"the record index was compacted or rolled back: reading all {snapshot.num_shards} shards")
    for number in shard_ids(snapshot.num_shards):
        entries = snapshot.shard(number).entries()
        if pc.count_distinct(entries.keys).as_py() != len(entries):
            return None
        if np.any(record_index_shard(entries.keys, snapshot.num_shards) != number):
            return None
        digests.add_located(entries.keys, entries.location_ids, entries.locations)
    return digests
