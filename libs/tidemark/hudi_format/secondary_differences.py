"""What a secondary index has too little and too much, in bounded memory: both sides are sorted, on disk where
they do not fit, and gone through side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.metadata_table.partitions.partition import StoredEntries
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import live_values
from tidemark.hudi_format.table_services.merging.sorted_entries import Entries, SortedEntries, windows

_HELD_BYTES: Final = 64 << 20
_MARK: Final = b""
"""The value of an entry that is there."""


def secondary_differences(
    rows: Iterable[pa.StringArray], stored: Iterable[StoredEntries], scratch: Path
) -> Iterator[tuple[pa.StringArray, pa.StringArray]]:
    """(missing, extra) composite keys, some at a time and each pair in their order.

    `rows`: the composite keys that the live rows say. `stored`: the entries of all groups, those of a group
    oldest first; no key is in two groups. `scratch`: an empty folder of the caller's. Raises
    CorruptFileError.
    """
    wanted = SortedEntries(scratch, "rows", _HELD_BYTES)
    for keys in rows:
        wanted.add(Entries.of(keys, pa.repeat(pa.scalar(_MARK, pa.binary()), len(keys))))
    found = SortedEntries(scratch, "stored", _HELD_BYTES)
    for part in stored:
        found.add(_marked(part))
    for of_rows, of_index in windows([wanted.batches(), found.batches()]):
        index = of_index.live().keys
        missing = of_rows.keys.filter(pc.invert(pc.is_in(of_rows.keys, value_set=index)))
        extra = index.filter(pc.invert(pc.is_in(index, value_set=of_rows.keys)))
        yield missing.cast(pa.string()), extra.cast(pa.string())


def _marked(part: StoredEntries) -> Entries:
    """The entries, of whose values only matters whether they are deleted."""
    if part.values is None:
        return Entries.of(part.keys, None)
    is_live = pa.array(live_values(part.values, part.schema, part.source))
    marks = pc.if_else(is_live, pa.scalar(_MARK, pa.binary()), pa.scalar(None, pa.binary()))
    return Entries.of(part.keys, marks)
