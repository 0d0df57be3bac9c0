"""The stored ordering value of present keys: the greater one of file slice and uncommitted entries."""

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
    """(ordering value per key, whether the key was found where it should be).

    A key whose newest uncommitted entry is exact need not be in the slice yet: that entry may have brought
    it there.
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
    """Says which keys are not where the index places them."""
    missing = np.flatnonzero(~proven)
    first = int(missing[0])
    location = int(at[first])
    return (
        f"record key {keys[first].as_py()!r} ({len(missing)} keys in all): the record index places it in "
        f"partition {locations.partition_paths[location]!r}, file group {locations.file_ids[location]}, "
        "whose newest file slice does not hold it"
    )
