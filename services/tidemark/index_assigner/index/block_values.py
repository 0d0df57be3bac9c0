"""Decodes the values of record index blocks into location ids, each distinct value once while it is
remembered.

A value is a location and the instant of the key's insert, so few distinct values repeat in block after block.
"""

from __future__ import annotations

from itertools import repeat
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.metadata_table.partitions.record_index_codec import decode_values
from tidemark.index_assigner.domain.locations import Int32Array, Locations

_REMEMBERED_MAX: Final = 1 << 16  # about 10 MB
_UNKNOWN: Final = -2


class BlockValues:
    """Decoded values of one schema. Ids are those of `Locations`, -1 for a delete."""

    def __init__(self, locations: Locations) -> None:
        self._locations = locations
        self._schema = ""
        self._ids: dict[bytes, int] = {}

    def locations(self, values: pa.BinaryArray, schema: str, name: str) -> Int32Array:
        """The location id of each value, written under ``schema``.

        Raises CorruptFileError, which names the file ``name``.
        """
        # Only the dictionary is decoded: for values v, w, v that is [v, w], and the codes [0, 1, 0] pick
        # the ids.
        encoded = values.dictionary_encode()
        if schema != self._schema or len(self._ids) > _REMEMBERED_MAX:
            self._schema, self._ids = schema, {}
        distinct = encoded.dictionary.to_numpy(zero_copy_only=False).tolist()
        ids = np.fromiter(map(self._ids.get, distinct, repeat(_UNKNOWN)), np.int32, len(distinct))
        new = np.flatnonzero(ids == _UNKNOWN)
        if new.size:
            which, locations, _ = decode_values(encoded.dictionary.take(pa.array(new)), schema, name)
            interned = [self._locations.intern(place.partition_path, place.file_id) for place in locations]
            ids[new] = np.array([*interned, -1], np.int32)[which]
            self._ids.update(zip([distinct[at] for at in new.tolist()], ids[new].tolist(), strict=True))
        location_ids: Int32Array = ids[encoded.indices.to_numpy()]
        return location_ids
