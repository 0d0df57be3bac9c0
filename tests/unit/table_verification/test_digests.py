"""Digests of keys: the same for the same keys however they come, and different for others."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.key_digest import EMPTY, key_hashes
from tidemark.hudi_format.model import RecordLocation
from tidemark.table_verification.digests import Digests

HERE, THERE = RecordLocation("p", "here"), RecordLocation("p", "there")


def plain_hash(key: str) -> int:
    """The same hash, byte by byte."""
    value, mask, content = 0, 2**64 - 1, key.encode()
    for byte in content:
        value = (value * 0x5851F42D4C957F2D + byte + 1) & mask
    value = (value + len(content) * 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


def test_hash_of_a_key_does_not_depend_on_the_others():
    keys = ["", "a", "\0", "\0\0", "aä𝄞" * 9, "x" * 200_000, *(f"key-{n}" for n in range(5_000))]
    Random(5).shuffle(keys)
    assert key_hashes(pa.array(keys)).tolist() == [plain_hash(key) for key in keys]
    sliced = pa.array(keys, pa.large_string())[7:]
    assert key_hashes(sliced).tolist() == [plain_hash(key) for key in keys[7:]]
    assert key_hashes(pa.array([], pa.string())).size == 0


def test_hashes_of_many_similar_keys_are_distinct():
    keys = ["".join(each) for each in product("0123456789ab", repeat=5)]
    assert len(np.unique(key_hashes(pa.array(keys)))) == len(keys)


def test_swapped_parts_of_keys_change_the_sum():
    one, other = Digests(), Digests()
    one.add(HERE, pa.array(["a1", "b2"]))
    other.add(HERE, pa.array(["a2", "b1"]))
    assert one.differing(other) == [HERE]


def test_added_and_taken_away_in_any_order_is_the_same():
    keys = pa.array([f"k{n}" for n in range(100)])
    direct, changed = Digests(), Digests()
    direct.add(HERE, keys[:60])
    direct.add(THERE, keys[60:])
    ids = np.array([0] * 50 + [1] * 49 + [-1], np.int32)
    changed.add_located(keys, ids, [HERE, THERE])
    assert changed.differing(direct) == [HERE, THERE]
    moved = pa.concat_arrays([keys[50:60], keys[99:]])
    changed.add_located(moved, np.array([1] * 10 + [-1], np.int32), [HERE, THERE], sign=-1)
    changed.add_located(moved, np.array([0] * 10 + [1], np.int32), [HERE, THERE])
    assert changed.differing(direct) == []
    assert direct.keys == changed.keys == 100


def test_file_group_without_keys_is_like_none():
    emptied = Digests()
    emptied.add(HERE, pa.array(["k"]))
    emptied.add_located(pa.array(["k"]), np.zeros(1, np.int32), [HERE], sign=-1)
    assert emptied[HERE] == emptied[THERE] == EMPTY
    assert emptied.differing(Digests()) == []
