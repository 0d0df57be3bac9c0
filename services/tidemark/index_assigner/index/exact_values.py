"""The stored ordering value of present keys: the greater of the file slice's and the uncommitted entry's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemark.index_assigner.domain.locations import Int32Array, Locations
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.index.slice_values import SliceValues
from tidemark.index_assigner.index.uncommitted import LaneEntries


def exact_values(
    slices: SliceValues,
    entries: LaneEntries,
    keys: pa.StringArray,
    composite: list[bytes],
    locations: Int32Array,
) -> tuple[Int64Array, BoolArray]:
    """Returns per key its ordering value, and whether the key is proven to be at its location.

    A key is proven by a live row in the slice, or by an exact uncommitted entry: that entry may be the key's
    insert, which is not in the slice yet.
    """
    held = slices.of(keys, locations)
    slots = entries.find(composite)
    in_memory = np.flatnonzero(slots >= 0)
    rows = entries.rows(slots[in_memory])
    valued = (rows["location"] >= 0) & rows["has_ordering"]
    at = in_memory[valued]
    ordering = held.ordering.copy()
    ordering[at] = np.maximum(ordering[at], rows["ordering"][valued])
    proven = held.live.copy()
    proven[at] |= rows["exact"][valued]
    return ordering, proven


def not_where_placed(keys: pa.StringArray, at: Int32Array, proven: BoolArray, locations: Locations) -> str:
    """The error text for keys that are not where the index has them; names the first."""
    missing = np.flatnonzero(~proven)
    first = int(missing[0])
    location = int(at[first])
    return (
        f"record key {keys[first].as_py()!r} ({len(missing)} keys in all): the record index places it in "
        f"partition {locations.partition_paths[location]!r}, file group {locations.file_ids[location]}, "
        "whose newest file slice does not hold it"
    )
