"""Lanes of a table with a partitioned index: the same for ever, and one for a shard where numbers allow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.hudi_format.partitioned_lanes import identity_lanes
from tidemark.hudi_format.record_index_hash import record_index_shard

TEXTS = st.text(max_size=12)
RECORDED = [[6, 2, 0, 2, 0], [6, 2, 0, 2, 0], [2, 6, 4, 6, 4]]


def java_string_hash(text: str) -> int:
    """String.hashCode as its documentation states it, character by character."""
    units = np.frombuffer(text.encode("utf-16-le"), "<u2").tolist()
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def lanes_of(keys: list[str], path: str, lanes: int) -> list[int]:
    ids = np.zeros(len(keys), np.int32)
    found: list[int] = identity_lanes(pa.array(keys, pa.string()), ids, [path], lanes).tolist()
    return found


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=30), st.integers(1, 1_000))
def test_lanes_follow_from_both_texts_by_the_stated_sum(rows: list[tuple[str, str]], lanes: int) -> None:
    paths = sorted({path for path, _ in rows})
    ids = np.array([paths.index(path) for path, _ in rows], np.int32)
    found = identity_lanes(pa.array([key for _, key in rows], pa.string()), ids, paths, lanes)
    assert found.tolist() == [
        (abs(java_string_hash(key)) + abs(java_string_hash(path))) % lanes for path, key in rows
    ]


def test_lanes_of_stored_positions_never_change() -> None:
    keys = ["k1", "k10", "", "ключ", "polygenelubricants"]
    assert [lanes_of(keys, path, 8) for path in ("", "eu", "day=2024-01-01/h=7")] == RECORDED


@pytest.mark.parametrize(("shards", "lanes"), [(8, 8), (8, 4), (12, 3), (1, 1)])
def test_all_keys_of_a_shard_have_one_lane_where_lanes_divides_the_shards(shards: int, lanes: int) -> None:
    keys = [f"key-{number}-{'x' * (number % 7)}" for number in range(2_000)]
    of_shard = record_index_shard(pa.array(keys), shards)
    of_lane = np.array(lanes_of(keys, "eu/berlin", lanes))
    pairs = set(zip(of_shard.tolist(), of_lane.tolist(), strict=True))
    assert len(pairs) == shards
    assert len({lane for _, lane in pairs}) == lanes


def test_no_keys_have_no_lanes() -> None:
    assert not len(identity_lanes(pa.array([], pa.string()), np.empty(0, np.int32), [], 8))
