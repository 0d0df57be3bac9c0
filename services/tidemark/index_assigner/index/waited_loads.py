"""Which look-ups wait until a shard is loaded, instead of reading its blocks beside the load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from tidemark.index_assigner.index.copies import copy_bytes
from tidemark.index_assigner.index.open_shard import OpenShard

# The share of a shard's blocks that a look-up has to read for it.
_READ_SHARE: Final = 0.75
# Fewer entries are read sooner than a file is written and synced.
_ENTRIES_MIN: Final = 50_000


def waited_for(asked: Iterable[tuple[OpenShard, pa.StringArray]], room: int) -> list[OpenShard]:
    """Those of these shards, which have no run, for which a look-up of these keys waits. There are ``room``
    bytes on the disk for runs.
    """
    waited = []
    for shard, keys in asked:
        if _is_worth_it(shard, keys) and (size := copy_bytes(shard)) <= room:
            waited.append(shard)
            room -= size
    return waited


def _is_worth_it(shard: OpenShard, keys: pa.StringArray) -> bool:
    """Whether a look-up of these keys, of which no tier above the blocks knows, waits for the shard's run.

    It does where the keys lie in most of the blocks. Example: 4 000 random keys lie in 1 160 of a shard's
    1 200 blocks. The look-up and the load both read and inflate these, which is most of the work of either.
    Beside each other they take twice as long, and each further batch reads the blocks again until the load
    has ended. A look-up that waits leaves a run to the next one.
    """
    base = shard.snapshot.base
    if base is None or not shard.may_load or base.entry_count < _ENTRIES_MIN:
        return False
    least = base.block_count * _READ_SHARE
    return len(keys) >= least and base.blocks_of(keys) >= least
