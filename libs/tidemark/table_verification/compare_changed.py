"""Rows against index entries by their digests, reading only what changed since a verified state.

Sound because, whatever happened in between, three things are read from the files of now: the keys of every
file group whose slice has other files than when its digest was made; the index changes in the log files that
were added to a shard, with the entries they replace looked up in the files of then; and every shard anew when
one of them has lost a file or got another base file (compaction, rollback). Each key that is read hashes to
its shard, is in its file group once, and a shard holds a key once: then equal digests for every file group
mean that each live key has one entry, that it names the key's place, and that no other entry exists.

Files that kept their names and sizes are not read again: damage inside them only a full run finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow.compute as pc

from tidemark.hudi_format.errors import FileMissingError, HudiFormatError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.log_file import BlockType
from tidemark.hudi_format.metadata_table.log_records import read_log_blocks
from tidemark.hudi_format.metadata_table.record_index import RECORD_INDEX_FOLDER, RecordIndexEntries
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot, decode_block
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
    """None: rows and index do not agree, or something cannot be read; a full comparison names it."""
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
    """The digests of now, and how many file groups were read for them."""
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
    """The state's digests after the changes in new log files; None when a shard did more than grow."""
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
        keys = RecordIndexEntries.concat([decode_block(e.block.block_type, e) for e in blocks]).keys
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
