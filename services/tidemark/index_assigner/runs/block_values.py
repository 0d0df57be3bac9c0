"""Decodes the values of record index blocks into location ids. Each location is parsed once while it is
remembered, however many insert instants come with it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.metadata_table.partitions.plain_values import LocationKey, split_plain
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import (
    decode_values,
    location_before_instant,
)
from tidemark.hudi_format.metadata_table.record_schema import has_own_layout
from tidemark.hudi_format.model import RecordLocation
from tidemark.index_assigner.domain.locations import Int32Array, Locations

_REMEMBERED_MAX: Final = 1 << 16  # about 10 MB
_UNKNOWN: Final = -2


class BlockValues:
    """Decoded values. Ids are those of `Locations`, -1 for a delete."""

    def __init__(self, locations: Locations) -> None:
        self._locations = locations
        self._ids: dict[LocationKey, int] = {}

    def locations(self, values: pa.BinaryArray, schema: str, name: str) -> Int32Array:
        """The location id of each value, written under ``schema``.

        Raises CorruptFileError, which names the file ``name``.
        """
        if schema and not has_own_layout(schema):
            return self._decoded(values, schema, name)
        if len(self._ids) > _REMEMBERED_MAX:
            self._ids = {}
        plain = split_plain(values)
        ids = np.array([self._id_of(key) for key in plain.keys], np.int32)
        of_rows = ids[plain.which]
        unknown = of_rows == _UNKNOWN
        located = np.empty(len(values), np.int32)
        located[plain.rows] = of_rows
        others = np.concatenate([plain.others, plain.rows[unknown]])
        if others.size:
            located[others] = self._decoded(values.take(pa.array(others)), schema, name)
        return located

    def _id_of(self, key: LocationKey) -> int:
        known = self._ids.get(key)
        if known is None:
            place = location_before_instant(*key)
            known = _UNKNOWN if place is None else self._intern(place)
            self._ids[key] = known
        return known

    def _intern(self, place: RecordLocation) -> int:
        return self._locations.intern(place.partition_path, place.file_id)

    def _decoded(self, values: pa.BinaryArray, schema: str, name: str) -> Int32Array:
        ids, locations, _ = decode_values(values, schema, name)
        # A delete has the id -1, which picks the last cell: ids [7, 9] and [1, -1] give [9, -1].
        interned = [self._intern(place) for place in locations]
        found: Int32Array = np.array([*interned, -1], np.int32)[ids]
        return found
