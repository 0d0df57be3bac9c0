"""Locations of record index values, each distinct value decoded once while it is remembered.

A value names a location and the instant of the key's insert; the same few stand in block after block.
"""

from __future__ import annotations

from itertools import repeat
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.metadata_table.record_index_codec import decode_values
from tidemark.index_assigner.domain.locations import Int32Array, Locations

_REMEMBERED_MAX: Final = 1 << 16  # about 10 MB
_UNKNOWN: Final = -2


class BlockValues:
    """See the module. Ids are those of `Locations`, -1 for a delete."""

    def __init__(self, locations: Locations) -> None:
        self._locations = locations
        self._schema = ""
        self._ids: dict[bytes, int] = {}

    def locations(self, values: pa.BinaryArray, schema: str, name: str) -> Int32Array:
        """The location of each value, written under `schema`; errors call the file `name`.

        Raises CorruptFileError.
        """
        encoded = values.dictionary_encode()
        if schema != self._schema or len(self._ids) > _REMEMBERED_MAX:
            self._schema, self._ids = schema, {}
        distinct = encoded.dictionary.to_numpy(zero_copy_only=False).tolist()
        ids = np.fromiter(map(self._ids.get, distinct, repeat(_UNKNOWN)), np.int32, len(distinct))
        new = np.flatnonzero(ids == _UNKNOWN)
        if new.size:
            which, locations, _ = decode_values(encoded.dictionary.take(pa.array(new)), schema, name)
            interned = [self._locations.intern(each.partition_path, each.file_id) for each in locations]
            ids[new] = np.array([*interned, -1], np.int32)[which]
            self._ids.update(zip([distinct[at] for at in new.tolist()], ids[new].tolist(), strict=True))
        found: Int32Array = ids[encoded.indices.to_numpy()]
        return found
