"""Keys and values in RocksDB.

====================================== =====================================================================
key                                    value
====================================== =====================================================================
shard (2 bytes, big-endian), key       an entry (`ENTRY`); location -1: ABSENT
``ff 00`` name                         identity of the table, layout version
``ff 01`` id (4 bytes, big-endian)     a location: partition path, NUL, file id
``ff 02`` shard, key                   a tombstone (`TOMBSTONE`)
``ff 03`` shard                        the shard's stamp, generation and base file (`ShardRecord`)
``ff 04`` shard                        bit map of the base file's blocks that were taken over whole
``ff 05`` lane                         position in the tombstones topic up to which tombstones are here
``ff 06`` shard, key                   a delete that was caught up and not looked at (`FOREIGN_DELETE`)
====================================== =====================================================================

Keys are UTF-8, so that a shard's entries lie in the order of the HFile blocks they come from.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import Int32Array

LAYOUT_VERSION: Final = 1
HAS_ORDERING: Final = 1
EXACT: Final = 2
ENTRY: Final = np.dtype([("location", "<i4"), ("ordering", "<i8"), ("generation", "<u4"), ("flags", "u1")])
TOMBSTONE: Final = np.dtype([("ordering", "<i8"), ("expires_ms", "<i8"), ("location", "<i4")])
FOREIGN_DELETE: Final = np.dtype([("location", "<i4")])

IDENTITY_KEY: Final = b"\xff\x00identity"
LOCATION_PREFIX: Final = b"\xff\x01"
TOMBSTONE_PREFIX: Final = b"\xff\x02"
STATE_PREFIX: Final = b"\xff\x03"
COVERAGE_PREFIX: Final = b"\xff\x04"
POSITION_PREFIX: Final = b"\xff\x05"
FOREIGN_PREFIX: Final = b"\xff\x06"


class ShardRecord(msgspec.Struct, frozen=True):
    """What is kept of a shard beside its entries.

    ``stamp``: completion time of the data instant that the entries reflect ("0": nothing was committed).
    ``generation``: entries of older ones hold lower bounds. ``base_name``: the base file whose blocks the
    coverage is about, with ``blocks`` blocks; ``base_mark``: what tells it from another file of that name
    (an index that was built anew has the names of the one before; former versions kept no mark).
    ``fold_generation``: of the fold under which the stamp was written. ``unseen``: identities of commits of
    other writers that were on the timeline then, and not in the fold: the entries may hold what they did.
    """

    stamp: str
    generation: int
    base_name: str | None
    blocks: int
    base_mark: str = ""
    fold_generation: int = 0
    unseen: tuple[str, ...] = ()


def shard_bytes(shard: ShardId) -> bytes:
    """Prefix of a shard's entries."""
    return shard.to_bytes(2, "big")


def shard_range(prefix: bytes, shard: ShardId) -> tuple[bytes, bytes]:
    """Half-open range of all keys of a shard below `prefix` (empty: its entries)."""
    return prefix + shard_bytes(shard), prefix + shard_bytes(ShardId(shard + 1))


def composite_keys(keys: pa.StringArray, shards: Int32Array) -> list[bytes]:
    """Entry keys of a batch: shard, then key."""
    prefixes = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(2), len(shards), [None, pa.py_buffer(np.ascontiguousarray(shards.astype(">u2")))]
    )
    joined = pc.binary_join_element_wise(prefixes.cast(pa.binary()), keys.cast(pa.binary()), b"")
    found: list[bytes] = joined.to_numpy(zero_copy_only=False).tolist()
    return found


def pack(values: npt.NDArray[np.void]) -> list[bytes]:
    """Each element of a structured array as its bytes."""
    packed: list[bytes] = values.view(f"V{values.dtype.itemsize}").tolist()
    return packed


def unpack(
    values: list[bytes | None], dtype: np.dtype[np.void]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]:
    """Positions of the values that are there, and those decoded."""
    present = np.flatnonzero(np.fromiter((value is not None for value in values), np.bool_, len(values)))
    joined = b"".join(value for value in values if value is not None)
    return present, np.frombuffer(joined, dtype)
