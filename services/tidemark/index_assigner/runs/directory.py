"""The directory of a run file: which shard it is of, and where the image of each block lies.

It follows the images, and a footer of 32 bytes follows it: a file that was not written to its end has none.

========================= ==============================
``length`` u64             bytes of the directory
``crc`` u32                CRC-32 of the directory
zeros                      12 bytes
``magic``                  8 bytes
========================= ==============================
"""

from __future__ import annotations

import itertools
import struct
import zlib
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.runs.errors import RunDamagedError
from tidemark.index_assigner.runs.images import Images, UInt32Array

FOOTER_BYTES: Final = 32
FORMAT_VERSION: Final = 1
PARTIAL_VERSION: Final = 2
"""Of a run that lacks blocks of its base file: a version that does not know such runs sets it aside."""
_MAGIC: Final = b"TIDERUN\x01"
_FOOTER: Final = struct.Struct("<QI12x8s")


class RunIdentity(msgspec.Struct, frozen=True):
    """What a run is a copy of. A run of another identity is of no use, even if its name is the right one.

    ``life``: the random name of the shard's content in RocksDB, which no other table, folder or process has.
    ``base_name``, ``base_mark``: the base file of the record index, and its version in
    the storage; "" in a change run.
    ``ordered``: whether entries have ordering values.
    ``change``: the random name of a change run; "" in a copy of a base file. ``generation``: of the shard
    when the change run was made; the exact ordering values are exact in that generation only.
    """

    shard: int
    life: str
    base_name: str
    base_mark: str
    ordered: bool
    change: str = ""
    generation: int = 0


class _Stored(msgspec.Struct, frozen=True):
    """The directory as MessagePack; columns are little-endian bytes."""

    version: int
    identity: RunIdentity
    entries: int
    locations: list[tuple[str, str]]
    starts: bytes
    counts: bytes
    widths: bytes
    checksums: bytes
    key_ends: bytes
    keys: bytes
    flags: bytes = b""
    held: bytes = b""


@dataclass(frozen=True, slots=True)
class Directory:
    """``locations``: (partition path, file id) by the run's own number. ``flags``: in a change run, what is
    true of the entries with that number (`entries.HAS_ORDERING`, `EXACT`, `ABSENT`); else b"".
    ``checksums``: CRC-32 of each image. ``first_keys``: the first key of each block, ascending in the file's
    order. ``held``: whether the run has an image of the block; a block without one may have any keys.
    """

    identity: RunIdentity
    entries: int
    locations: list[tuple[str, str]]
    images: Images
    checksums: UInt32Array
    first_keys: list[bytes]
    held: BoolArray
    flags: bytes = b""


def encode_directory(directory: Directory) -> bytes:
    """The directory and its footer: the last bytes of a run file."""
    images, whole = directory.images, bool(directory.held.all())
    content = msgspec.msgpack.encode(
        _Stored(
            FORMAT_VERSION if whole else PARTIAL_VERSION,
            directory.identity,
            directory.entries,
            directory.locations,
            images.starts.astype("<i8").tobytes(),
            images.counts.astype("<i8").tobytes(),
            images.widths.astype("<i8").tobytes(),
            directory.checksums.astype("<u4").tobytes(),
            # Where each first key ends in the joined text behind.
            np.cumsum([len(key) for key in directory.first_keys], dtype="<i8").tobytes(),
            b"".join(directory.first_keys),
            directory.flags,
            b"" if whole else np.packbits(directory.held).tobytes(),
        )
    )
    return content + _FOOTER.pack(len(content), zlib.crc32(content), _MAGIC)


def directory_length(footer: bytes, file_size: int, name: str) -> int:
    """The bytes of the directory, by the last bytes of a file of that size. Raises RunDamagedError."""
    if len(footer) != FOOTER_BYTES or not footer.endswith(_MAGIC):
        raise RunDamagedError(f"{name} is no run file, or was not written to its end")
    length, _, _ = _FOOTER.unpack(footer)
    if length > file_size - FOOTER_BYTES:
        raise RunDamagedError(f"{name}: its directory would have {length} bytes, the file has {file_size}")
    return int(length)


def decode_directory(content: bytes, footer: bytes, name: str) -> Directory:
    """The directory. Raises RunDamagedError when a byte of it is another one."""
    _, checksum, _ = _FOOTER.unpack(footer)
    if zlib.crc32(content) != checksum:
        raise RunDamagedError(f"{name}: its directory is damaged")
    try:
        stored = msgspec.msgpack.decode(content, type=_Stored)
    except msgspec.MsgspecError as error:
        raise RunDamagedError(f"{name}: its directory cannot be read: {error}") from error
    if stored.version not in (FORMAT_VERSION, PARTIAL_VERSION):
        raise RunDamagedError(f"{name} has version {stored.version} of the format, not {PARTIAL_VERSION}")
    images = Images(
        _numbers(stored.starts), _numbers(stored.counts), _numbers(stored.widths), stored.identity.ordered
    )
    ends = [0, *_numbers(stored.key_ends).tolist()]
    first_keys = [stored.keys[begin:end] for begin, end in itertools.pairwise(ends)]
    checksums = np.frombuffer(stored.checksums, "<u4")
    held = np.ones(len(images), np.bool_)
    if stored.held:
        held = np.unpackbits(np.frombuffer(stored.held, np.uint8), count=len(images)).astype(np.bool_)
    return Directory(
        stored.identity, stored.entries, stored.locations, images, checksums, first_keys, held, stored.flags
    )


def _numbers(column: bytes) -> Int64Array:
    return np.frombuffer(column, "<i8").astype(np.int64)
