"""Where the records of shards are in RocksDB.

A shard whose entries are partly in a change run has its record under a prefix of its own. A version that does
not know change runs finds no record of such a shard, and fills it anew; the record that it then writes under
the usual prefix ends the other one.
"""

from __future__ import annotations

import msgspec

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.rocks import Puts, RocksTier
from tidemark.index_assigner.index.rocks_layout import (
    CHANGED_PREFIX,
    COVERAGE_PREFIX,
    STATE_PREFIX,
    ShardRecord,
    shard_bytes,
)

_PREFIXES = (STATE_PREFIX, CHANGED_PREFIX)


def read_record(rocks: RocksTier, number: ShardId) -> ShardRecord | None:
    """The record of a shard, None where there is none. Raises CacheCorruptError for a damaged one."""
    values = rocks.get_many([prefix + shard_bytes(number) for prefix in _PREFIXES])
    value = next((stored for stored in values if stored is not None), None)
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=ShardRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise rocks.damaged(f"the record of shard {number} cannot be read: {error}") from error


def record_puts(shard: OpenShard) -> Puts:
    """The put of the shard's record, for one batch with what it is about."""
    prefix = CHANGED_PREFIX if shard.change else STATE_PREFIX
    return [([prefix + shard_bytes(shard.number)], [msgspec.json.encode(shard.record())])]


def former_records(number: ShardId, change: str) -> list[bytes]:
    """The keys to delete where a record is written that names this change run ("": none).

    Versions before run files kept a bit map of blocks whose entries are here. They must not believe it when
    they come back, so it goes in the batch that writes a record of this version.
    """
    other = STATE_PREFIX if change else CHANGED_PREFIX
    return [other + shard_bytes(number), COVERAGE_PREFIX + shard_bytes(number)]


def all_records(number: ShardId) -> list[bytes]:
    """The keys of all that is stored of a shard beside its entries, tombstones and notes."""
    return [prefix + shard_bytes(number) for prefix in (*_PREFIXES, COVERAGE_PREFIX)]


def stored_shards(rocks: RocksTier) -> list[ShardId]:
    """The numbers, ascending, of the shards that RocksDB has a record of."""
    keys = [key for prefix in _PREFIXES for key in rocks.keys_between(prefix, _behind(prefix))]
    return sorted({ShardId(int.from_bytes(key[2:], "big")) for key in keys})


def _behind(prefix: bytes) -> bytes:
    return prefix[:1] + bytes([prefix[1] + 1])
