"""An input topic that was deleted and made again while it is read: nothing of the new one is skipped."""

from __future__ import annotations

import msgspec
import pytest

from testing.memory_storage import InMemoryStorage
from tests.simulation.shuffle_cluster import INPUT, PARTITIONS, ShuffleCluster
from tidemark.epoch_protocol.input_topics import (
    INPUT_TOPICS_PATH,
    InputTopic,
    InputTopics,
    SeenTopic,
    accepted,
    encode_input_topics,
    lanes_of,
)
from tidemark.index_assigner.input.same_topics import stale_by_record
from tidemark.stream_runtime.kafka.ports import TopicSpec


class Recorded(ShuffleCluster):
    """With the coordinator's record of the input topics."""

    def __init__(self, seed: int) -> None:
        self.storage = InMemoryStorage()
        super().__init__(seed, stale=stale_by_record(self.storage))
        self.admin = self.client.admin()
        self.record(InputTopic(PARTITIONS, PARTITIONS, self.topic_id()))

    def topic_id(self) -> str:
        return self.admin.topic_states([INPUT])[INPUT].id

    def record(self, topic: InputTopic) -> None:
        self.recorded = topic
        self.storage.replace(INPUT_TOPICS_PATH, encode_input_topics(InputTopics({INPUT: topic})))

    def recreate(self) -> None:
        self.admin.delete_topics([INPUT])
        self.admin.create_topics([TopicSpec(INPUT, PARTITIONS)])

    def accept(self, keep_positions: bool) -> None:
        taken = accepted(self.recorded, SeenTopic(PARTITIONS, self.topic_id()), keep_positions)
        self.record(taken)
        self.lanes = lanes_of(INPUT, taken)


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_of_another_topic_is_read_before_it_is_accepted_and_all_of_it_after(
    seed: int, is_running: bool
) -> None:
    cluster = Recorded(seed)
    only = cluster.add_shuffler(0)
    cluster.share(only)
    cluster.produce(80)
    cluster.settle(only)
    before = len(cluster.counted())
    if not is_running:
        cluster.leases[only].lanes = frozenset()
        cluster.settle(only)
    cluster.recreate()
    # More than there were: at the former positions there is something to read.
    cluster.produce(400)
    cluster.share(only)
    cluster.step(only, 40)
    assert len(cluster.counted()) == before, "the former positions say nothing about this topic"
    cluster.accept(keep_positions=False)
    cluster.share(only)
    cluster.settle(only)
    cluster.check()


def test_a_shuffler_that_still_holds_the_former_lanes_reads_no_more_of_them() -> None:
    cluster = Recorded(5)
    late, second = cluster.add_shuffler(0), cluster.add_shuffler(1)
    cluster.share(late)
    cluster.produce(60)
    cluster.settle(late)
    cluster.recreate()
    cluster.produce(400)
    former = cluster.leases[late].lanes
    cluster.accept(keep_positions=False)
    cluster.share(second)
    cluster.leases[late].lanes = former
    for _ in range(60):
        cluster.step(late, 1)
        cluster.step(second, 1)
    cluster.settle(second)
    cluster.check()


def test_the_same_records_under_another_id_go_on_where_the_lanes_stand() -> None:
    cluster = Recorded(6)
    only = cluster.add_shuffler(0)
    cluster.share(only)
    cluster.produce(80)
    cluster.settle(only)
    # As after a restore: the broker's ids are others, the records are where they were.
    cluster.record(msgspec.structs.replace(cluster.recorded, id="before the restore"))
    cluster.produce(80)
    cluster.step(only, 40)
    assert len(cluster.keyed()) < len(cluster.sent)
    cluster.record(replace_id(cluster))
    cluster.leases[only].lanes = frozenset()
    cluster.settle(only)
    cluster.share(only)
    cluster.settle(only)
    cluster.check()


def replace_id(cluster: Recorded) -> InputTopic:
    seen = SeenTopic(PARTITIONS, cluster.topic_id())
    taken = accepted(cluster.recorded, seen, keep_positions=True)
    assert taken.incarnation == cluster.recorded.incarnation
    return taken
