"""The keys that a shard's changes leave deleted, so many at a time as may be in memory.

A shard that was away for long may lack millions of deletes, and which entry of a key is its last is known at
the end of the changes only. So keys are divided by their tags (`runs.images`), and the changes are read once
for each range of tags. How wide a range may be shows while they are read: where the keys of a range take more
than the limit, its upper half is left to a later reading.

Example: all tags are asked for, and after three log blocks the deleted keys take more than the limit. Those
of the upper half are let go, and the rest of the blocks adds keys of the lower half alone. Then the changes
are read again for the upper half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.metadata_table import RecordIndexEntries
from tidemark.index_assigner.runs.images import tags_of

_TAGS: Final = 1 << 32
_FEW: Final = 4

Changes = Callable[[], Iterable[RecordIndexEntries]]


def gone_keys(changes: Changes, bytes_max: int) -> Iterator[pa.StringArray]:
    """Yields the keys whose last entry in the changes is a delete, each of them once.

    ``changes``: reads them, oldest first, of which one part is in memory at a time. An array has
    ``bytes_max`` bytes at most, or keys of one tag.
    """
    begin, width = 0, _TAGS
    while begin < _TAGS:
        gone, end = _gone_within(changes(), begin, min(begin + width, _TAGS), bytes_max)
        width = end - begin if gone.nbytes * _FEW > bytes_max else 2 * (end - begin)
        begin = end
        if len(gone):
            yield gone


def _gone_within(
    parts: Iterable[RecordIndexEntries], begin: int, end: int, bytes_max: int
) -> tuple[pa.StringArray, int]:
    """The keys with tags from ``begin`` on to an end that is returned beside them, at most ``end``."""
    gone = pa.array([], pa.string())
    for part in parts:
        if not len(gone) and (part.location_ids >= 0).all():
            continue  # most parts have no deletes
        dead = _within(part.keys.filter(pa.array(part.location_ids < 0)), begin, end)
        before = gone.filter(pc.invert(pc.is_in(gone, value_set=part.keys)))
        gone = pa.concat_arrays([before, dead])
        while gone.nbytes > bytes_max and end - begin > 1:
            end = begin + (end - begin) // 2
            gone = _within(gone, begin, end)
    return gone, end


def _within(keys: pa.StringArray, begin: int, end: int) -> pa.StringArray:
    tags = tags_of(keys).astype(np.int64)
    return keys.filter(pa.array((tags >= begin) & (tags < end)))
