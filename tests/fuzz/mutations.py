"""One seeded change of a file's bytes: flips, cuts, repeats, numbers that lie, pieces moved."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Final

_INTERESTING: Final = (0, 1, -1, 7, 0x7F, 0x80, 0xFF, 2**15, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63))


def mutated(data: bytes, random: Random) -> bytes:
    """`data` with one to three changes; never equal to it."""
    changed = data
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        changed = random.choice(_MUTATIONS)(changed, random)
    return changed if changed != data else data + b"\x00"


def _flip(data: bytes, random: Random) -> bytes:
    if not data:
        return b"\x00"
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def _byte(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.randbytes(1) + data[at + 1 :]


def _number(data: bytes, random: Random) -> bytes:
    """A fixed-width number in either byte order, or a varint, over what is there."""
    value = random.choice(_INTERESTING)
    kind = random.choice(("b", "h", "i", "q"))
    bits = 8 * struct.calcsize(kind)
    wrapped = (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    packed = struct.pack(random.choice("<>") + kind, wrapped)
    at = random.randrange(len(data) + 1)
    return data[:at] + packed + data[at + len(packed) :]


def _cut(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _remove(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + data[at + random.randrange(1, 64) :]


def _repeat(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + data[at : at + random.randrange(1, 64)] * random.randrange(2, 5) + data[at:]


def _insert(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.randbytes(random.randrange(1, 16)) + data[at:]


def _move(data: bytes, random: Random) -> bytes:
    at, to, length = random.randrange(len(data) + 1), random.randrange(len(data) + 1), random.randrange(1, 64)
    piece = data[at : at + length]
    rest = data[:at] + data[at + length :]
    return rest[:to] + piece + rest[to:]


_MUTATIONS: Final[tuple[Callable[[bytes, Random], bytes], ...]] = (
    _flip,
    _byte,
    _number,
    _number,
    _cut,
    _remove,
    _repeat,
    _insert,
    _move,
)
