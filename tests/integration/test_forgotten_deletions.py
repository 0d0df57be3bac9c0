"""A broker that is killed forgets what it deleted since it last noted where logs begin: the table goes on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.assign_world import ServedTable
from tests.integration.test_assign_service import Records, check, random_records
from tests.own_ports import with_own_ports
from tidemark.commit_coordinator.commit import trimming
from tidemark.epoch_protocol.entries import SnapshotTaken, decode_decision
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.ports import TopicPartition
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.jars import KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import JavaRuntime
from tidemark.stream_runtime.retry import Deadline

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
_WAIT_S = 240.0


@pytest.fixture
def forgetful(java: JavaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Kafka notes starts half a minute after its own, then once a minute; this one when it ends in order."""
    settings = dict.fromkeys(
        ("log.flush.start.offset.checkpoint.interval.ms", "log.initial.task.delay.ms"), "86400000"
    )
    folder, jars = tmp_path_factory.mktemp("forgetful"), ensure_jars(KAFKA.name, java)
    with EmbeddedKafka(with_own_ports(folder), jars, java.home, settings=settings) as broker:
        yield broker


class Forgotten:
    """A table with a snapshot after each epoch."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.table = ServedTable(kafka, folder, "forgotten")
        self.sent: Records = []
        self._dice = random.Random(1)

    def serve(self) -> None:
        self.table.coordinator()
        self.table.assigner()
        self.table.writer()

    def rest(self) -> None:
        """Ends all services."""
        self.table.close()
        assert [each.errors for each in self.table.running if each.errors] == []
        self.table.running.clear()

    def feed(self) -> None:
        """An epoch, or a few."""
        records = random_records(self._dice, 60, True)
        self.table.produce(records)
        self.sent.extend(records)
        self.table.wait_until_committed()

    def feed_until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = Deadline(SystemClock(), _WAIT_S)
        while not is_so():
            deadline.check(what)
            self.feed()

    def starts(self) -> dict[TopicPartition, int]:
        """Where the logs of ledger and decisions begin."""
        with closing(self.table.observer.admin()) as admin:
            names = self.table.names
            return {at: admin.start_offset(at) for at in (names.ledger_partition, names.epochs_partition)}

    def first_document(self) -> str:
        """That of the snapshot with which the decisions begin."""
        epochs = self.table.names.epochs_partition
        with closing(self.table.observer.partition_reader()) as reader:
            reader.assign({epochs: self.starts()[epochs]})
            (first,) = reader.poll(1, _WAIT_S)
        entry = decode_decision(first.value or b"")
        assert isinstance(entry, SnapshotTaken)
        return entry.path


def test_a_table_goes_on_whose_broker_forgot_what_was_deleted(
    forgetful: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimming, "EPOCHS_BETWEEN", 1)
    monkeypatch.setattr(trimming, "_SECONDS_BETWEEN_MIN", 0)
    forgotten = Forgotten(forgetful, tmp_path)
    try:
        forgotten.serve()
        forgotten.feed_until("the topics are trimmed", lambda: 0 not in forgotten.starts().values())
        forgotten.rest()
        forgetful.stop()
        forgetful.start()
        noted, document = forgotten.starts(), forgotten.first_document()
        forgotten.serve()
        forgotten.feed_until("its document goes", lambda: not forgotten.table.storage.exists(document))
        forgotten.rest()
        assert forgotten.starts() != noted
        forgetful.kill()
        forgetful.start_node(1)
        assert forgotten.starts() == noted, "the broker knows what was deleted: this tests nothing"
        forgotten.serve()
        forgotten.feed()
        check(forgotten.table, forgotten.sent)
        forgotten.rest()
    finally:
        forgotten.table.close()
