"""Which lane answers for a key that somebody asks for, by the kind of the record index."""

from __future__ import annotations

import pyarrow as pa

from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.partitioned_lanes import identity_lanes
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.ledger_client.asked_lanes import AskedLanes

KEYS = pa.array([f"key-{number}" for number in range(50)])
GLOBAL, PARTITIONED = AskedLanes(IndexKind.GLOBAL, 6, 4), AskedLanes(IndexKind.PARTITIONED, 0, 4)


def test_a_global_index_is_asked_by_shard_and_without_a_partition() -> None:
    assert GLOBAL.problem(None) is None
    shards, lanes = GLOBAL.shards_and_lanes(KEYS, None)
    assert shards.tolist() == record_index_shard(KEYS, 6).tolist()
    assert lanes.tolist() == (shards % 4).tolist()
    assert "ask without a partition" in (GLOBAL.problem("") or "")


def test_a_partitioned_index_is_asked_where_rows_of_the_partition_are_shuffled_to() -> None:
    assert "name the partition" in (PARTITIONED.problem(None) or "")
    lanes_of = {}
    for path in ("", "eu", "us/ca"):
        assert PARTITIONED.problem(path) is None
        shards, lanes = PARTITIONED.shards_and_lanes(KEYS, path)
        assert not shards.any()
        assert lanes.tolist() == identity_lanes(KEYS, shards, [path], 4).tolist()
        lanes_of[path] = lanes.tolist()
    assert lanes_of["eu"] != lanes_of["us/ca"], "the partition counts"
