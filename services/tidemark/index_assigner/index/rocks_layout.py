"""Layout of keys and values in RocksDB.

====================================== =====================================================================
key                                    value
====================================== =====================================================================
shard (2 bytes, big-endian), key       an entry (`ENTRY`); location -1: ABSENT
``ff 00`` name                         identity of the table, layout version
``ff 01`` id (4 bytes, big-endian)     a location: partition path, NUL, file id
``ff 02`` shard, key                   a tombstone (`TOMBSTONE`)
``ff 03`` shard                        the shard's stamp, generation and base file (`ShardRecord`)
``ff 07`` shard                        the same, where entries of the shard are in a change run
``ff 04`` shard                        left by earlier versions; deleted when the shard is opened
``ff 05`` lane                         position in the tombstones topic up to which tombstones are here
``ff 06`` shard, key                   a delete that was caught up and not looked at (`FOREIGN_DELETE`)
``ff 08`` shard                        which lane, partition and shard it is, with a partitioned record index
====================================== =====================================================================

With a partitioned record index tombstones and deletes have the keys that `cache_keys` states.

Keys are UTF-8, so a shard's entries have the order of the HFile blocks that they come from.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import Int32Array

LAYOUT_VERSION: Final = 1
ENTRY: Final = np.dtype([("location", "<i4"), ("ordering", "<i8"), ("generation", "<u4"), ("flags", "u1")])
EntryArray: TypeAlias = npt.NDArray[np.void]
"""Rows of `ENTRY`."""
TOMBSTONE: Final = np.dtype([("ordering", "<i8"), ("expires_ms", "<i8"), ("location", "<i4")])
FOREIGN_DELETE: Final = np.dtype([("location", "<i4")])

IDENTITY_KEY: Final = b"\xff\x00identity"
LOCATION_PREFIX: Final = b"\xff\x01"
TOMBSTONE_PREFIX: Final = b"\xff\x02"
STATE_PREFIX: Final = b"\xff\x03"
COVERAGE_PREFIX: Final = b"\xff\x04"
POSITION_PREFIX: Final = b"\xff\x05"
FOREIGN_PREFIX: Final = b"\xff\x06"
CHANGED_PREFIX: Final = b"\xff\x07"
UNIT_PREFIX: Final = b"\xff\x08"


class ShardRecord(msgspec.Struct, frozen=True):
    """What is stored of a shard beside its entries.

    ``stamp``: completion time of the newest data instant that the entries include ("0": nothing was
    committed). ``generation``: entries with a smaller one have lower bounds as ordering values.
    ``base_name``: the base file that the slice had then. ``blocks``: 0; earlier versions kept a bit map of
    that many blocks, and believe none where the number is another one. ``base_mark``: tells the base file
    from another of the same name, since an index that was built anew reuses names (earlier versions stored no
    mark). ``fold_generation``: of the fold when the stamp was written. ``unseen``: identities of other
    writers' commits that were on the timeline then, but not in the fold: the entries may include their
    changes. ``life``: random name of the entries, which begins anew when they are dropped; "" in records of
    earlier versions. Run files of another life are never asked. ``change``: random name of the change run
    over which the entries lie; "": there is none. ``written``: how many entries were written since that run
    was made, -1: an earlier version did not count. ``index``: which building of the record index the entries
    are of (`index_life`); "" where it could not be told, and in records of earlier versions.
    """

    stamp: str
    generation: int
    base_name: str | None
    blocks: int
    base_mark: str = ""
    fold_generation: int = 0
    unseen: tuple[str, ...] = ()
    life: str = ""
    change: str = ""
    written: int = -1
    index: str = ""


def shard_bytes(shard: ShardId) -> bytes:
    """The prefix of all entries of a shard."""
    return shard.to_bytes(2, "big")


def shard_range(prefix: bytes, shard: ShardId) -> tuple[bytes, bytes]:
    """The half-open range of a shard's keys with this prefix (b"": its entries)."""
    return prefix + shard_bytes(shard), prefix + shard_bytes(ShardId(shard + 1))


def composite_keys(keys: pa.StringArray, shards: Int32Array) -> list[bytes]:
    """The entry keys of a batch: shard (2 bytes, big-endian), then key."""
    # The shards' bytes are taken as one column of 2-byte values, which Arrow joins with the keys without a
    # loop in Python: shards [1, 258] and keys ["a", "b"] give b"\x00\x01a", b"\x01\x02b".
    prefixes = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(2), len(shards), [None, pa.py_buffer(np.ascontiguousarray(shards.astype(">u2")))]
    )
    joined = pc.binary_join_element_wise(prefixes.cast(pa.binary()), keys.cast(pa.binary()), b"")
    entry_keys: list[bytes] = joined.to_numpy(zero_copy_only=False).tolist()
    return entry_keys


def pack(values: npt.NDArray[np.void]) -> list[bytes]:
    """The bytes of each element of a structured array."""
    # Viewed as opaque values of the element's size, so that `tolist` returns bytes without a loop in Python.
    packed: list[bytes] = values.view(f"V{values.dtype.itemsize}").tolist()
    return packed


def unpack(
    values: list[bytes | None], dtype: np.dtype[np.void]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]:
    """Decodes values read by `RocksTier.get_many`.

    Returns the positions of the values that are not None, and those values as an array of ``dtype``.
    """
    present = np.flatnonzero(np.fromiter((value is not None for value in values), np.bool_, len(values)))
    joined = b"".join(value for value in values if value is not None)
    return present, np.frombuffer(joined, dtype)
