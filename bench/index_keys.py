"""Keys for measurements of the record index, made from numbers, and which of them a batch asks for.

A table of n keys has those of the even numbers 0, 2, … 2n - 2. The odd numbers give keys that lie among them
and are not in the table. No key exists as a Python object, and a table's keys are never all in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.columnar import BinaryColumn
from tidemark.hudi_format.record_index_hash import record_index_shard

Int64Array = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

MIXED_WIDTHS: Final = (24, 64)
WIDE: Final = 300
_DIGITS: Final = 12
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_DASHES: Final = (8, 13, 18, 23)
_LATEST_SHARE: Final = 0.01
_CHUNK: Final = 1 << 20


def sequential(numbers: Int64Array) -> pa.StringArray:
    """`order-000000000042`: ascending as their numbers, 18 bytes."""
    return _fixed_width(_ordered(numbers))


def uuids(numbers: Int64Array) -> pa.StringArray:
    """Text of 36 bytes without any order, as random UUIDs are."""
    out = np.empty((len(numbers), 36), np.uint8)
    out[:, _UUID_DASHES] = ord("-")
    out[:, [at for at in range(36) if at not in _UUID_DASHES]] = _hex_digits(numbers, 2)
    return _fixed_width(out)


def mixed(numbers: Int64Array) -> pa.StringArray:
    """24 to 64 bytes: as `sequential`, then a dash and random hexadecimal digits."""
    least, most = MIXED_WIDTHS
    ordered = _ordered(numbers)
    dashes = np.full((len(numbers), 1), ord("-"), np.uint8)
    wide = np.concatenate([ordered, dashes, _hex_digits(numbers, 3)], axis=1)[:, :most]
    widths = least + (_scrambled(numbers, 9) % np.uint64(most - least + 1)).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
    kept = np.arange(most) < widths[:, None]
    return BinaryColumn(wide[kept], offsets).to_arrow(pa.string())


def wide(numbers: Int64Array) -> pa.StringArray:
    """300 bytes: as `sequential`, then a dash and random hexadecimal digits."""
    ordered = _ordered(numbers)
    dashes = np.full((len(numbers), 1), ord("-"), np.uint8)
    digits = _hex_digits(numbers, -(-WIDE // 16))
    return _fixed_width(np.concatenate([ordered, dashes, digits], axis=1)[:, :WIDE])


KEYS: Final[Mapping[str, Callable[[Int64Array], pa.StringArray]]] = {
    "sequential": sequential,
    "uuid": uuids,
    "mixed": mixed,
    "wide": wide,
}


def uniform(random: np.random.Generator, count: int, size: int) -> Int64Array:
    """``size`` distinct positions in [0, count), each as likely as any other."""
    return _distinct(lambda more: random.integers(0, count, more), count, size)


def zipf(random: np.random.Generator, count: int, size: int) -> Int64Array:
    """Distinct positions; the one of rank r is drawn with a chance of about 1 / r (Zipf with exponent 1).

    Ranks are spread over the positions, so that often chosen keys are not neighbours.
    """
    step = _coprime(count)

    def draw(more: int) -> Int64Array:
        ranks = np.exp(random.random(more) * np.log(count + 1)).astype(np.int64) - 1
        positions: Int64Array = np.minimum(ranks, count - 1) * step % count
        return positions

    return _distinct(draw, count, size)


def latest(random: np.random.Generator, count: int, size: int) -> Int64Array:
    """Distinct positions among the newest hundredth, or among the newest ``size`` where that is more."""
    newest = min(count, max(int(count * _LATEST_SHARE), size))
    from_newest = _distinct(lambda more: random.integers(0, newest, more), newest, size)
    positions: Int64Array = count - 1 - from_newest
    return positions


CHOICES: Final[Mapping[str, Callable[[np.random.Generator, int, int], Int64Array]]] = {
    "uniform": uniform,
    "zipf": zipf,
    "latest": latest,
}


def numbers_by_shard(kind: str, count: int, shards: int) -> list[Int64Array]:
    """The numbers of a table's keys, by the shard of each key, ascending."""
    parts: list[list[Int64Array]] = [[] for _ in range(shards)]
    for first in range(0, count, _CHUNK):
        numbers = np.arange(first, min(first + _CHUNK, count), dtype=np.int64) * 2
        of_shard = record_index_shard(KEYS[kind](numbers), shards)
        for shard in range(shards):
            parts[shard].append(numbers[of_shard == shard])
    return [np.concatenate(part) for part in parts]


def _distinct(draw: Callable[[int], Int64Array], among: int, size: int) -> Int64Array:
    """``size`` different ones of what ``draw`` draws, in the order in which they were drawn."""
    if size > among:
        raise ValueError(f"{size} distinct keys of {among}")
    drawn = np.empty(0, np.int64)
    while True:
        drawn = np.concatenate([drawn, draw(2 * size)])
        _, first = np.unique(drawn, return_index=True)
        if len(first) >= size:
            chosen: Int64Array = drawn[np.sort(first)[:size]]
            return chosen


def _coprime(count: int) -> int:
    """A step of about 0.6 of the count that reaches every position."""
    step = int(count * 0.6180339887) | 1
    while np.gcd(step, count) != 1:
        step += 2
    return step


def _ordered(numbers: Int64Array) -> Bytes:
    """(n, 18) bytes `order-` and 12 decimal digits."""
    out = np.empty((len(numbers), 6 + _DIGITS), np.uint8)
    out[:, :6] = np.frombuffer(b"order-", np.uint8)
    rest = numbers.copy()
    for at in range(5 + _DIGITS, 5, -1):
        out[:, at] = rest % 10 + ord("0")
        rest //= 10
    return out


def _hex_digits(numbers: Int64Array, words: int) -> Bytes:
    """(n, 16 · words) hexadecimal digits that follow from the numbers and look random."""
    raw = np.stack([_scrambled(numbers, word) for word in range(words)], axis=1).view(np.uint8)
    out = np.empty((len(numbers), 16 * words), np.uint8)
    out[:, ::2], out[:, 1::2] = _HEX[raw >> 4], _HEX[raw & 15]
    return out


def _scrambled(numbers: Int64Array, seed: int) -> npt.NDArray[np.uint64]:
    """The SplitMix64 finalizer: different numbers give different words."""
    word = numbers.astype(np.uint64) + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % (1 << 64))
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def _fixed_width(rows: Bytes) -> pa.StringArray:
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    return BinaryColumn(np.ascontiguousarray(rows).reshape(-1), offsets).to_arrow(pa.string())
