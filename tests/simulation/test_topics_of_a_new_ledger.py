"""What a new ledger makes of the topics that it finds: the input's, and that of dead letters."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

import tidemark.commit_coordinator.offline.new_ledger as new_ledger_module
from tests.simulation.commit_path import CommitPath
from tests.simulation.recorded_input import recorded_input
from tests.simulation.scripted_epochs import first_epoch
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.input.starts import INPUT_EARLIEST, INPUT_STARTS
from tidemark.commit_coordinator.input.watch import read_record
from tidemark.commit_coordinator.offline.new_ledger import new_ledger
from tidemark.commit_coordinator.opening.ledger_record import LedgerRecorder
from tidemark.commit_coordinator.opening.topic_settings import TopicSettingsError
from tidemark.config import InputPartitioning, InputStart, TableConfigFile
from tidemark.epoch_protocol.input_topics import (
    INPUT_TOPICS_PATH,
    InputTopic,
    InputTopics,
    encode_input_topics,
)
from tidemark.stream_runtime.kafka.ports import (
    KafkaConfigError,
    KafkaUnavailableError,
    TopicPartition,
    TopicSpec,
)


def test_a_new_ledger_after_the_whole_kafka_was_lost_makes_the_input_topics_too(
    path: CommitPath, config: TableConfigFile
):
    admin = path.client.admin()
    admin.create_topics([TopicSpec("in", 1)])
    path.storage.replace(INPUT_TOPICS_PATH, recorded_input(path, "in"))
    admin.delete_topics(["in"])
    new_ledger(config, path.client, path.storage, path.clock, path.ids)
    assert admin.partitions("in") == 1
    topic = read_record(path.storage).topics["in"]
    assert (topic.id, topic.incarnation) == (admin.topic_states(["in"])["in"].id, 2)


def test_with_latest_a_new_ledger_passes_over_no_record(path: CommitPath, config: TableConfigFile):
    """Lane 0 never counted and was to begin at 2, lane 1 came while the topic was read."""
    latest = replace(config, input=replace(config.input, start=InputStart.LATEST))
    path.client.admin().create_topics([TopicSpec("in", 2)])
    for partition, count in ((0, 5), (1, 3)):
        for _ in range(count):
            path.broker.produce(TopicPartition("in", partition), None, b"x", ())
    path.storage.replace(INPUT_TOPICS_PATH, recorded_input(path, "in"))
    path.storage.replace(INPUT_STARTS, b'{"in:0": 2}')
    new_ledger(latest, path.client, path.storage, path.clock, path.ids)
    assert json.loads(path.storage.read(INPUT_STARTS)) == {"in:0": 2, "in:1": 0}


@pytest.mark.parametrize(("deleted", "named"), [(2, []), (3, ["in:0"])])
def test_a_new_ledger_names_lanes_whose_first_records_kafka_deleted(
    path: CommitPath, config: TableConfigFile, deleted: int, named: list[str]
):
    """Lane 0 never counted, as its registry was down, and was to begin at 2."""
    admin, lane = path.client.admin(), TopicPartition("in", 0)
    admin.create_topics([TopicSpec("in", 2)])
    for _ in range(5):
        path.broker.produce(lane, None, b"x", ())
    path.storage.replace(INPUT_TOPICS_PATH, recorded_input(path, "in"))
    path.storage.replace(INPUT_EARLIEST, b'{"in:0": 2, "in:1": 0}')
    admin.delete_records({lane: deleted})
    begun = new_ledger(config, path.client, path.storage, path.clock, path.ids)
    assert (begun.positions, begun.anew) == ({}, named)
    assert not path.storage.exists(INPUT_EARLIEST)


def test_a_new_ledger_that_may_not_set_the_dead_letters_topic_has_deleted_nothing(
    path: CommitPath, config: TableConfigFile, monkeypatch: pytest.MonkeyPatch
):
    """limits.message_bytes was raised, and whoever runs the command may not change the topic's settings."""
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    before, admin = path.state(), path.client.admin()
    admin.create_topics([TopicSpec(path.topics.dead_letter, 1, 1, {"max.message.bytes": "1000"})])

    def refuse(*_: object) -> None:
        raise KafkaConfigError("this user lacks an ACL")

    with monkeypatch.context() as refusing:
        refusing.setattr(type(admin), "configure_topic", refuse)
        with pytest.raises(TopicSettingsError, match=r"max.message.bytes"):
            new_ledger(config, path.client, path.storage, path.clock, path.ids)
    assert path.state() == before
    new_ledger(config, path.client, path.storage, path.clock, path.ids)
    assert path.state().ledger != before.ledger


def test_a_new_ledger_that_broke_off_finds_a_topic_that_was_made_anew_once_more(
    path: CommitPath, config: TableConfigFile, monkeypatch: pytest.MonkeyPatch
):
    """With `input.partitioning: shard` the lanes of both topics have the same names, and the new topic has
    the former one's position, too.
    """
    sharded = replace(config, input=replace(config.input, partitioning=InputPartitioning.SHARD))
    first_epoch(path)
    path.run_until_idle()
    state = path.state()
    assert path.context is not None
    state.committed = msgspec.structs.replace(state.committed, keyed_next={"0": 5})
    LedgerRecorder(path.context.publishing).keep(state)
    path.crash()
    path.client.admin().create_topics([TopicSpec("in", 1)])
    for _ in range(9):
        path.broker.produce(TopicPartition("in", 0), None, b"x", ())
    former = InputTopics({"in": InputTopic(1, 1, "the former one")})
    path.storage.replace(INPUT_TOPICS_PATH, encode_input_topics(former))
    monkeypatch.setattr(new_ledger_module, "newest_epoch", lambda *_: None)

    def silent(*_: object) -> None:
        raise KafkaUnavailableError("nobody there")

    with monkeypatch.context() as breaking:
        breaking.setattr(DecisionsLog, "append", silent)
        with pytest.raises(KafkaUnavailableError):
            new_ledger(sharded, path.client, path.storage, path.clock, path.ids)
    begun = new_ledger(sharded, path.client, path.storage, path.clock, path.ids)
    assert (begun.epoch, begun.positions, begun.anew) == (1, {}, ["0"])
