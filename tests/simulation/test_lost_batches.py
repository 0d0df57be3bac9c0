"""Index rows that counting entries name and the topic lacks: the successor asks for a rewind, and goes on."""

from __future__ import annotations

import pytest

from tests.simulation.assign_cluster import ALL_LANES
from tests.simulation.test_assign_slots import alone, finish
from tests.unit.index_assigner.assign_rig import Event
from tidemark.epoch_protocol.entries import Topic
from tidemark.epoch_protocol.errors import IncompleteRangeError
from tidemark.epoch_protocol.fold import Verdict
from tidemark.index_assigner.index.errors import IndexRebuiltError
from tidemark.stream_runtime.kafka.ports import TopicPartition


def successor_of_lost_index_rows(how):
    cluster, first = alone(seed=14)
    cluster.feed([Event(f"n{i}", at=1) for i in range(20)])
    cluster.settle(first)
    produced = next(entry for entry, _ in cluster.verdicts()).produced
    index = next(p for p in produced if p.topic is Topic.INDEX)
    log = cluster.broker.log(TopicPartition(cluster.names.index, index.partition))
    if how == "deleted":
        log.delete_below(log.end)
    else:
        record = log._records[index.first]
        record.value = (record.value or b"")[:-1] + b"?"
    second = cluster.add_assigner(0)
    second.lease.lanes = ALL_LANES
    return cluster, second


@pytest.mark.parametrize("how", ["changed", "deleted"])
def test_index_rows_that_a_counting_entry_names_and_the_topic_lacks_are_tagged_anew(how):
    cluster, second = successor_of_lost_index_rows(how)
    cluster.settle(second, rounds=40)
    assert second.loop.counters.transactions == 0, "nothing is tagged without them"
    [generation] = {generation for _, generation in cluster.rewinds_wanted}
    assert generation == 0
    cluster.coordinator.rewind()
    finish(cluster, second)
    assert {entry.generation for entry, v in cluster.verdicts() if v is Verdict.COUNTS} == {0, 1}


def test_an_index_that_was_built_anew_with_other_shards_is_said_to_the_coordinator(monkeypatch):
    """Which looks before it rewinds: with the former number back the lanes open, and tagging goes on."""
    cluster, first = alone(seed=15)
    cluster.feed([Event(f"n{i}", at=1) for i in range(20)])
    open_lane, rebuilt = first.index.open_lane, [True]

    def opened(*args):
        if rebuilt:
            raise IndexRebuiltError("the record index has 10 shards, not 4")
        open_lane(*args)

    monkeypatch.setattr(first.index, "open_lane", opened)
    cluster.settle(first, rounds=40)
    assert first.loop.counters.transactions == 0
    assert set(cluster.rewinds_wanted) == {("the record index has 10 shards, not 4", 0)}
    rebuilt.clear()
    finish(cluster, first)


def test_a_rewind_that_never_comes_stops_the_assigner():
    cluster, second = successor_of_lost_index_rows("changed")
    with pytest.raises(IncompleteRangeError, match="rewind"):
        cluster.settle(second, rounds=1_000)
    assert len(cluster.rewinds_wanted) == 10
