"""Compares rows with index entries by digests, and reads only what changed since a verified state.

These files are read, whatever happened in between:

1. Every file group whose slice has other files than when its digest was made: its keys. Not those of a group
   that was only compacted since, if the compaction says the same digest.
2. The log files that were added to a shard, also those that a compaction merged since: their index changes.
   The entries that they replace are looked up in the shard's files of the verified state.
3. Of a compacted shard the new base file's number of entries. It and what the compaction says of its keys
   must follow from the former base file and the log files.
4. One compacted file group or shard in `compactions.READ_ONE_IN`, by turn: its new base file.
5. If any shard lost a file in another way (rollback), a compaction's files are cleaned, or 3 does not hold,
   all shards.

While reading it is checked that each key hashes to its shard, that a file group has a key once, and that a
shard has a key once. With that, equal digests for every file group mean: each live key has one entry, the
entry names the key's file group, and no other entry exists.

Files that kept name and size are not read again: only a full run finds damage inside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import FileMissingError, HudiFormatError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.key_digest import MODULUS, Digest, key_hashes
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
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT
from tidemark.table_verification.compactions import Compactions, is_read_by_turn
from tidemark.table_verification.compare_all import SAY_EVERY, Compared, Say
from tidemark.table_verification.digests import Digests
from tidemark.table_verification.findings import Findings
from tidemark.table_verification.live_keys import LiveKeys
from tidemark.table_verification.verified_state import (
    ShardFiles,
    VerifiedGroup,
    VerifiedState,
    fingerprints,
)


def compare_changed(
    snapshot: MetadataTableSnapshot,
    slices: Sequence[FileSlice],
    prints: Mapping[RecordLocation, str],
    live: LiveKeys,
    state: VerifiedState,
    say: Say,
    sizes: Mapping[str, Mapping[str, int]],
) -> Compared | None:
    """Compares rows and index entries. ``sizes``: partition path -> file name -> bytes.

    Returns None when they differ, or something cannot be read: then a full comparison has to name the
    difference.
    """
    idle = _OnlyCompacted(Compactions(snapshot.storage, snapshot.data_timeline, DATA_ROOT), sizes)
    read = _row_digests(slices, prints, live, state.groups, say, idle)
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
    idle: _OnlyCompacted,
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
        if known is not None and idle.has(file_slice, known):
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

    None when a shard changed in another way than by new log files and compactions, or when what a compaction
    wrote does not follow from what it read.
    """
    if len(state.shards) != snapshot.num_shards:
        return None
    compactions = Compactions(snapshot.storage, snapshot.metadata_timeline, METADATA_TABLE_ROOT)
    digests = Digests({location: group.digest for location, group in state.groups.items()})
    for number, before in enumerate(state.shards):
        shard = snapshot.shard(ShardId(number)).file_slice
        steps = compactions.undone(shard, before.base)
        try:
            if steps is None or not _add_changes(snapshot, ShardId(number), before, steps[-1], digests):
                return None
            if len(steps) > 1 and not _is_compacted_right(snapshot, compactions, steps):
                return None
        except FileMissingError:
            return None
    return digests


def _add_changes(
    snapshot: MetadataTableSnapshot, number: ShardId, before: ShardFiles, whole: FileSlice, digests: Digests
) -> bool:
    """Adds what changed in a shard; ``whole``: its slice as if nobody had compacted it since ``before``.

    False when it changed in another way than by log files.
    """
    if not set(before.logs) <= set(whole.log_files):
        return False
    added = [name for name in whole.log_files if name not in before.logs]
    if not added:
        return True
    keys = _changed_keys(snapshot, added)
    if keys is None:
        return False
    taken = _with_logs(snapshot, whole, before.logs).lookup(keys)
    given = _with_logs(snapshot, whole, whole.log_files).lookup(keys)
    if np.any(record_index_shard(keys, snapshot.num_shards) != number):
        return False
    digests.add_located(keys, taken.location_ids, taken.locations, sign=-1)
    digests.add_located(keys, given.location_ids, given.locations)
    return True


def _changed_keys(snapshot: MetadataTableSnapshot, logs: Sequence[str]) -> pa.Array | None:
    """The keys of these log files, sorted; None when a block folds others or takes others back."""
    blocks = read_log_blocks(snapshot.storage, RECORD_INDEX_FOLDER, logs)
    if any(e.block.compacted_block_times or e.block.block_type is BlockType.COMMAND for e in blocks):
        return None
    keys = RecordIndexEntries.concat([decode_entries(stored_entries(e)) for e in blocks]).keys
    return keys.unique().sort()


def _with_logs(snapshot: MetadataTableSnapshot, of: FileSlice, logs: Sequence[str]) -> ShardSnapshot:
    """The shard with the base file of a slice, and these log files."""
    then = FileSlice(of.partition_path, of.file_id, of.base_file, of.base_instant, tuple(logs))
    return ShardSnapshot(
        snapshot.storage, RECORD_INDEX_FOLDER, then, snapshot.validity.is_valid, lambda _: None
    )


def _is_compacted_right(
    snapshot: MetadataTableSnapshot, compactions: Compactions, steps: Sequence[FileSlice]
) -> bool:
    """Whether the newest base file has as many entries as it should, and the compactions say the digest that
    they should. ``steps``: as `Compactions.undone` gives them.
    """
    now, source = steps[0], steps[-1]
    if is_read_by_turn(now):
        return _has_same_entries(snapshot, now, source)
    logs = source.log_files[: len(source.log_files) - len(now.log_files)]
    before, after = _with_logs(snapshot, source, ()), _with_logs(snapshot, source, logs)
    keys = _changed_keys(snapshot, logs)
    made = _with_logs(snapshot, now, ()).base
    if keys is None or made is None:
        return False
    was, is_ = before.lookup(keys).found, after.lookup(keys).found
    hashes = key_hashes(keys)
    came, went = is_ & ~was, was & ~is_
    base_entries = before.base.entry_count if before.base is not None else 0
    count = base_entries + int(came.sum()) - int(went.sum())
    total = int(hashes[came].sum(dtype=np.uint64)) - int(hashes[went].sum(dtype=np.uint64))
    said = [compactions.digest(step) for step in steps[:-1]]
    return made.entry_count == count and _says(said, (count, total % MODULUS))


def _says(said: Sequence[Digest | None], expected: Digest) -> bool:
    """Whether the compactions, the newest first, say this number of entries and this change of the sum.

    A compaction of another engine says nothing, and is believed.
    """
    known = [digest for digest in said if digest is not None]
    if len(known) < len(said):
        return True
    return (known[0][0], sum(total for _, total in known) % MODULUS) == expected


def _has_same_entries(snapshot: MetadataTableSnapshot, now: FileSlice, source: FileSlice) -> bool:
    held: list[Digests] = []
    for file_slice in (now, source):
        entries = _with_logs(snapshot, file_slice, file_slice.log_files).entries()
        digests = Digests()
        digests.add_located(entries.keys, entries.location_ids, entries.locations)
        held.append(digests)
    return not held[0].differing(held[1])


@dataclass(frozen=True)
class _OnlyCompacted:
    """Data file groups that were compacted, and not written to, since they were verified."""

    compactions: Compactions
    sizes: Mapping[str, Mapping[str, int]]

    def has(self, file_slice: FileSlice, known: VerifiedGroup) -> bool:
        """Whether the slice is one base file that a compaction made of what was verified, and the compaction
        says the verified digest. One in `READ_ONE_IN` is read all the same.
        """
        operation = self.compactions.operation(file_slice)
        if operation is None or file_slice.log_files or is_read_by_turn(file_slice):
            return False
        source = FileSlice(
            file_slice.partition_path,
            file_slice.file_id,
            operation.base_file or None,
            operation.base_instant,
            operation.log_files,
        )
        try:
            (print_,) = fingerprints([source], self.sizes).values()
        except KeyError:
            # Its files are cleaned.
            return False
        return print_ == known.fingerprint and self.compactions.digest(file_slice) == known.digest


def _whole_digests(snapshot: MetadataTableSnapshot, say: Say) -> Digests | None:
    """The digests of all index entries; None when a key is twice in a shard, or in the wrong one."""
    digests = Digests()
    say(f"the record index did not only get log files: reading all {snapshot.num_shards} shards")
    for number in shard_ids(snapshot.num_shards):
        entries = snapshot.shard(number).entries()
        if pc.count_distinct(entries.keys).as_py() != len(entries):
            return None
        if np.any(record_index_shard(entries.keys, snapshot.num_shards) != number):
            return None
        digests.add_located(entries.keys, entries.location_ids, entries.locations)
    return digests
