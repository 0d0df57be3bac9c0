"""XXH64, the hash by which Hudi names columns and partitions in keys of the column stats (METADATA_TABLE.md,
section 10.3).

It is written in Python because so few texts are hashed: each column and each data partition once.
"""

from __future__ import annotations

from typing import Final

_MASK: Final = 2**64 - 1
_PRIME_1: Final = 0x9E3779B185EBCA87
_PRIME_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME_3: Final = 0x165667B19E3779F9
_PRIME_4: Final = 0x85EBCA77C2B2AE63
_PRIME_5: Final = 0x27D4EB2F165667C5
_STRIPE: Final = 32


def xxh64(data: bytes, seed: int = 0) -> int:
    """The hash as an unsigned number of 64 bits."""
    length, position = len(data), 0
    if length < _STRIPE:
        state = (seed + _PRIME_5) & _MASK
    else:
        lanes = [seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2, seed, seed - _PRIME_1]
        while position <= length - _STRIPE:
            for number in range(4):
                lanes[number] = _round(lanes[number], _word(data, position + 8 * number, 8))
            position += _STRIPE
        state = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            state = ((state ^ _round(0, lane)) * _PRIME_1 + _PRIME_4) & _MASK
    return _mixed(_tail((state + length) & _MASK, data, position))


def _tail(state: int, data: bytes, position: int) -> int:
    """Takes in what follows the last whole stripe: words of 8 bytes, then one of 4, then single bytes."""
    while position + 8 <= len(data):
        state = (_rotated(state ^ _round(0, _word(data, position, 8)), 27) * _PRIME_1 + _PRIME_4) & _MASK
        position += 8
    if position + 4 <= len(data):
        state ^= _word(data, position, 4) * _PRIME_1 & _MASK
        state = (_rotated(state, 23) * _PRIME_2 + _PRIME_3) & _MASK
        position += 4
    for byte in data[position:]:
        state = _rotated(state ^ byte * _PRIME_5 & _MASK, 11) * _PRIME_1 & _MASK
    return state


def _mixed(state: int) -> int:
    state = (state ^ state >> 33) * _PRIME_2 & _MASK
    state = (state ^ state >> 29) * _PRIME_3 & _MASK
    return state ^ state >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _PRIME_2) & _MASK, 31) * _PRIME_1 & _MASK


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (64 - bits)) & _MASK


def _word(data: bytes, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "little")
