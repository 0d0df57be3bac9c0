"""Input topics that grow, vanish, come back as others, or leave the configuration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from testing.memory_storage import InMemoryStorage
from testing.terms import begin_term
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tidemark.commit_coordinator.errors import NotReadyError
from tidemark.commit_coordinator.input.starts import INPUT_EARLIEST, INPUT_STARTS, DamagedStartsError
from tidemark.commit_coordinator.input.watch import (
    InputStoppedError,
    InputView,
    InputWatch,
    TopicNotAcceptedError,
    read_record,
)
from tidemark.commit_coordinator.offline.table import remove_topic
from tidemark.commit_coordinator.opening.topics_setup import (
    RECORD,
    TopicsChangedError,
    check_recorded,
    ensure_topics,
    open_inputs,
)
from tidemark.config import InputPartitioning, InputStart, TableConfigFile, load_config
from tidemark.epoch_protocol.input_topics import InputTopic
from tidemark.hudi_format.errors import FencedOutError
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec
from tidemark.table_status.warnings import WarningKind


class World:
    """A table's folder and a broker; `start` is a coordinator's start, as far as the input goes."""

    def __init__(self, folder: Path) -> None:
        (folder / "t.avsc").write_text(
            '{"type": "record", "name": "t", "fields": [{"name": "id", "type": "string"}]}'
        )
        (folder / "t.yaml").write_text(
            "table: {name: orders, path: ./w, record_key: [id], schema: t.avsc,\n"
            "  index: {shards: 4, lanes: 3}}\n"
            "input: {topics: [in], partitions: 3}\n"
            "kafka: {bootstrap.servers: embedded}\n"
            "state: {path: ./state}\n"
        )
        self.config: TableConfigFile = load_config(folder / "t.yaml")
        self.cluster, self.storage = MemoryCluster(), InMemoryStorage()
        self.views: list[InputView] = []
        self.term = begin_term(self.storage)

    def configure(self, **input_section: object) -> None:
        self.config = replace(self.config, input=replace(self.config.input, **input_section))  # type: ignore[arg-type]

    def start(self, *, takes_over: bool = True) -> InputWatch:
        opened = open_inputs(self.config, self.storage, self.cluster.admin)
        check_recorded(self.storage, ensure_topics(self.config, self.cluster.admin))
        watch = InputWatch(self.config, self.storage, self.cluster.admin, opened.topics, self.views.append)
        if takes_over:
            watch.took_over(self.term, opened.recorded)
        return watch

    def topic_id(self) -> str:
        return self.cluster.admin.topic_states(["in"])["in"].id

    def recreate(self, partitions: int) -> None:
        self.cluster.admin.delete_topics(["in"])
        self.cluster.admin.create_topics([TopicSpec("in", partitions)])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_new_partitions_are_lanes_without_a_restart(world: World) -> None:
    watch = world.start()
    assert world.views[-1].lanes() == ["in:0", "in:1", "in:2"]
    world.cluster.broker.grow_topic("in", 5)
    assert watch.look_for_all().lanes() == ["in:0", "in:1", "in:2", "in:3", "in:4"]
    assert world.views[-1] == watch.view
    assert read_record(world.storage).topics["in"].partitions == 5, "recorded before anybody may read them"


def test_who_asks_before_the_takeover_is_to_ask_again(world: World) -> None:
    """A coordinator answers calls before it has the term in which it may write."""
    watch = world.start(takes_over=False)
    with pytest.raises(NotReadyError):
        watch.look_for_all()
    with pytest.raises(NotReadyError):
        watch.accept("in", keep_positions=False)
    assert world.views == []


def test_growth_is_warned_of_where_no_ordering_field_puts_keys_in_order(world: World) -> None:
    world.start()
    world.cluster.broker.grow_topic("in", 5)
    watch = world.start()
    (warning,) = watch.warnings()
    assert "grew from 3 to 5 partitions" in warning.text
    assert "accept-topic in" in warning.text
    assert world.start().warnings() == [warning], "after a restart as well"
    watch.accept("in", keep_positions=False)
    assert world.start().warnings() == []
    assert watch.view.lanes() == [f"in:{partition}" for partition in range(5)], "nothing is read again"
    world.config = replace(world.config, table=replace(world.config.table, ordering="id"))
    world.cluster.broker.grow_topic("in", 6)
    assert world.start().warnings() == []


def test_growth_while_no_coordinator_runs_is_seen_in_a_record_of_counts_alone(world: World) -> None:
    world.storage.create(RECORD, json.dumps({"in": 2, "orders.keyed": 3}).encode())
    world.cluster.admin.create_topics([TopicSpec("in", 4)])
    watch = world.start()
    assert watch.view.topics["in"] == InputTopic(4, 2, world.topic_id())
    assert "grew from 2 to 4" in watch.warnings()[0].text


def test_where_lanes_begin_is_recorded_when_they_are_seen_first(world: World) -> None:
    watch = world.start()
    begun = {"in:0": 0, "in:1": 0, "in:2": 0}
    assert watch.starts == json.loads(world.storage.read(INPUT_EARLIEST)) == begun
    world.cluster.broker.grow_topic("in", 4)
    watch.look()
    assert watch.starts == json.loads(world.storage.read(INPUT_EARLIEST)) == {**begun, "in:3": 0}
    assert world.start().starts == watch.starts
    world.storage.replace(INPUT_EARLIEST, b"{")
    watch.look()
    world.cluster.broker.grow_topic("in", 5)
    with pytest.raises(DamagedStartsError, match=r"input-earliest\.json .*begin at the start"):
        watch.look()


def test_with_latest_new_partitions_of_a_read_topic_begin_at_their_start(world: World) -> None:
    world.configure(start=InputStart.LATEST)
    world.cluster.admin.create_topics([TopicSpec("in", 1)])
    in_0 = TopicPartition("in", 0)
    world.cluster.broker.produce(in_0, None, b"before", ())
    watch = world.start()
    world.cluster.broker.grow_topic("in", 2)
    world.cluster.broker.produce(TopicPartition("in", 1), None, b"after", ())
    watch.look()
    assert watch.starts == {"in:0": 1, "in:1": 0}
    assert json.loads(world.storage.read(INPUT_STARTS)) == watch.starts


def test_a_damaged_record_of_starts_keeps_nobody_from_looking_once_it_is_repaired(world: World) -> None:
    """It is read again when a topic grows: long after the start, on the thread that looks."""
    world.configure(start=InputStart.LATEST)
    watch = world.start()
    whole = world.storage.read(INPUT_STARTS)
    world.storage.replace(INPUT_STARTS, b"{")
    world.cluster.broker.grow_topic("in", 4)
    watch.try_to_look()
    (warning,) = [each for each in watch.warnings() if each.kind is WarningKind.TOPICS_UNWATCHED]
    assert "input-starts.json is damaged" in warning.text
    assert "in:3" not in watch.view.lanes()
    world.storage.replace(INPUT_STARTS, whole)
    watch.try_to_look()
    assert "in:3" in watch.view.lanes()
    assert [each for each in watch.warnings() if each.kind is WarningKind.TOPICS_UNWATCHED] == []


def test_an_error_that_nobody_expected_keeps_nobody_from_looking_either(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = world.start()
    world.cluster.broker.grow_topic("in", 4)

    def fail(*_: object) -> None:
        raise RuntimeError("a client that was closed")

    with monkeypatch.context() as failing:
        failing.setattr(watch._admin, "topic_states", fail)
        watch.try_to_look()
    assert any("a client that was closed" in warning.text for warning in watch.warnings())
    watch.try_to_look()
    assert "in:3" in watch.view.lanes()


def test_with_partitioning_by_shard_growth_stops_the_lanes_and_is_refused_by_name(world: World) -> None:
    world.configure(partitioning=InputPartitioning.SHARD)
    watch = world.start()
    world.cluster.broker.grow_topic("in", 4)
    assert watch.look().lanes() == []
    assert "topic in grew from 3 to 4 partitions" in watch.warnings()[0].text
    with pytest.raises(InputStoppedError, match="grew from 3 to 4"):
        watch.look_for_all()
    with pytest.raises(TopicsChangedError, match=r"topic in grew from 3 to 4 .*new-ledger"):
        world.start()


def test_another_topic_of_the_name_stops_its_lanes_until_it_is_accepted(world: World) -> None:
    world.configure(topics=("in", "other"))
    watch = world.start()
    world.recreate(2)
    assert watch.look().lanes() == ["other:0", "other:1", "other:2"], "the others are read on"
    assert "input accept-topic in" in watch.warnings()[0].text
    assert world.start().view == watch.view, "after a restart as well"
    taken, from_start = watch.accept("in", keep_positions=False)
    assert from_start
    assert (taken.partitions, taken.incarnation) == (2, 2)
    assert watch.view.lanes()[:2] == ["in@2:0", "in@2:1"]
    assert watch.warnings() == []
    assert world.start().view == watch.view


def test_a_restored_topic_is_accepted_at_its_positions(world: World) -> None:
    watch = world.start()
    world.recreate(3)
    watch.look()
    taken, from_start = watch.accept("in", keep_positions=True)
    assert not from_start
    assert watch.view.lanes() == ["in:0", "in:1", "in:2"]
    assert taken.id == read_record(world.storage).topics["in"].id == world.topic_id()
    world.recreate(2)
    with pytest.raises(TopicNotAcceptedError, match="has 2 partitions now, and had 3"):
        watch.accept("in", keep_positions=True)


def test_with_latest_an_accepted_topic_is_read_from_its_start(world: World) -> None:
    world.configure(start=InputStart.LATEST)
    watch = world.start()
    world.recreate(1)
    world.cluster.broker.produce(TopicPartition("in", 0), None, b"x", ())
    watch.accept("in", keep_positions=False)
    assert watch.starts["in@2:0"] == 0


def test_a_deleted_topic_is_never_made_again(world: World) -> None:
    watch = world.start()
    world.cluster.admin.delete_topics(["in"])
    assert watch.look().lanes() == []
    assert "does not exist any more" in watch.warnings()[0].text
    assert "does not exist any more" in world.start().warnings()[0].text
    assert world.cluster.admin.partitions("in") is None
    with pytest.raises(TopicNotAcceptedError, match="there is no topic in"):
        watch.accept("in", keep_positions=False)
    with pytest.raises(TopicNotAcceptedError, match=r"inn is not in input.topics, which has: in"):
        watch.accept("inn", keep_positions=False)


def test_with_partitioning_by_shard_another_topic_is_accepted_at_its_positions_alone(world: World) -> None:
    world.configure(partitioning=InputPartitioning.SHARD)
    watch = world.start()
    world.recreate(3)
    assert watch.look().lanes() == []
    with pytest.raises(TopicNotAcceptedError, match=r"new-ledger.*keep-positions"):
        watch.accept("in", keep_positions=False)
    watch.accept("in", keep_positions=True)
    assert watch.view.stopped == {}


def test_a_misspelt_topic_is_not_made_and_the_right_one_not_left(world: World) -> None:
    world.start()
    world.configure(topics=("inn",))
    with pytest.raises(TopicsChangedError, match=r"no longer has in.*inn, which does not exist: is it missp"):
        world.start()
    world.configure(topics=("in", "inn"))
    with pytest.raises(TopicsChangedError, match=r"inn, which does not exist on embedded \(is in meant\?\)"):
        world.start()
    assert world.cluster.admin.partitions("inn") is None


def test_a_topic_that_left_has_to_be_confirmed_and_may_come_back(world: World) -> None:
    world.configure(topics=("in", "returns"))
    world.start()
    world.configure(topics=("in",))
    with pytest.raises(TopicsChangedError, match="`tidemark input remove-topic returns`"):
        world.start()
    with pytest.raises(TopicsChangedError, match="never read a topic retuns"):
        remove_topic(world.config, world.storage, "retuns")
    with pytest.raises(TopicsChangedError, match="take in out of input.topics first"):
        remove_topic(world.config, world.storage, "in")
    remove_topic(world.config, world.storage, "returns")
    assert world.start().view.lanes() == ["in:0", "in:1", "in:2"]
    assert read_record(world.storage).topics["returns"].removed
    world.configure(topics=("in", "returns"))
    assert len(world.start().view.lanes()) == 6
    assert not read_record(world.storage).topics["returns"].removed


def test_a_topic_that_left_is_asked_for_in_a_record_of_counts_alone(world: World) -> None:
    world.storage.create(RECORD, json.dumps({"in": 3, "returns": 1, "orders.keyed": 3}).encode())
    with pytest.raises(TopicsChangedError, match="remove-topic returns"):
        world.start()


def test_a_coordinator_that_was_replaced_writes_no_record(world: World) -> None:
    watch = world.start()
    before = read_record(world.storage)
    world.cluster.broker.grow_topic("in", 5)
    begin_term(world.storage, 2)
    with pytest.raises(FencedOutError):
        watch.look()
    assert read_record(world.storage) == before
    assert watch.view.lanes() == ["in:0", "in:1", "in:2"], "what is not recorded is not read"
