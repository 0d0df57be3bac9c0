"""Commands that work without a coordinator, with the configuration of a table that is another's copy, or that
a coordinator serves at another address.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.unit.table_files import new_table, write_config
from tidemark.cli import answering
from tidemark.cli.main import main
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.commit_coordinator.opening.ledger_identity import ledger_id, location_of
from tidemark.commit_coordinator.opening.sign_of_life import SIGN
from tidemark.commit_coordinator.opening.topics_setup import ensure_topics, open_inputs
from tidemark.config import load_config
from tidemark.console.admin_client import NobodyAnswersError
from tidemark.epoch_protocol.input_topics import (
    INPUT_TOPICS_PATH,
    InputTopics,
    SeenTopic,
    encode_input_topics,
    first_read,
)
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.index_assigner.shuffle.dead_letters import dead_letters
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import Isolation, Message, TopicPartition

COMMANDS = [("list",), ("show", "0"), ("replay", "--dry-run"), ("replay",)]


class Production:
    """A table with a ledger and one dead letter on a broker that every configuration reaches."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.file = write_config(folder)
        new_table(folder / "table")
        clock, config = ManualClock(), load_config(self.file, {})
        self.broker = MemoryBroker(clock, SeededIds(1))
        self.client = MemoryKafkaClient(self.broker)
        storage, names = LocalStorage(folder / "table"), TopicNames("orders")
        ensure_topics(config, self.client.admin())
        open_inputs(config, storage, self.client.admin())
        reader = FoldReader(
            self.client,
            names.ledger,
            names.epochs,
            lambda path, sha256: load_document(storage, path, sha256),
            clock,
        )
        log = DecisionsLog(self.client, names.epochs, "orders-coordinator", reader, clock, lambda _: None)
        log.claim("a", ledger_id(storage, SeededIds(2)), location_of(storage))
        log.close()
        reader.close()
        message = Message("orders-in", 0, 0, b"k", b"{", (), 1_234)
        (letter,) = dead_letters(
            [message], [Refusal(0, DeadLetterReason.NOT_JSON, "why")], names.dead_letter, 1 << 20
        )
        self.broker.produce(TopicPartition(names.dead_letter, 0), letter.key, letter.value, letter.headers)

    def records(self) -> int:
        """How many the input has."""
        admin = self.client.admin()
        return sum(
            admin.end_offset(TopicPartition("orders-in", number), Isolation.READ_COMMITTED)
            for number in range(admin.partitions("orders-in") or 0)
        )


def _nobody(_: str) -> None:
    raise NobodyAnswersError("nobody answers")


@pytest.fixture
def production(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Production:
    made = Production(tmp_path / "production")
    monkeypatch.setattr(ConfluentKafkaClient, "from_config", lambda *_, **__: made.client)
    monkeypatch.setattr(answering, "connect", _nobody)
    return made


@pytest.mark.parametrize("command", COMMANDS)
def test_dead_letters_of_the_table_itself(production: Production, command: tuple[str, ...]) -> None:
    assert main(["dead-letter", *command, "-c", str(production.file)]) == 0


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("copied", ["configuration", "folder", "another table"])
def test_a_copied_configuration_does_not_reach_the_dead_letters_of_the_table(
    production: Production,
    copied: str,
    command: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    file = write_config(copy)
    if copied == "folder":
        shutil.copytree(production.folder / "table", copy / "table")
    elif copied == "another table":
        new_table(copy / "table")
        ledger_id(LocalStorage(copy / "table"), SeededIds(3))
    before = production.records()
    assert main(["dead-letter", *command, "-c", str(file)]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert str(production.folder / "table") in said
    assert ("--copied" if copied == "folder" else "a table.name of its own") in said
    assert production.records() == before


class Watched(ManualClock):
    """While somebody looks, a coordinator that nobody here knows the address of changes its sign of life."""

    def __init__(self, sign: Path) -> None:
        super().__init__()
        self._sign, self._changes = sign, 0

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._changes += 1
        self._sign.write_text(f"other {self._changes}")


def test_a_topic_is_not_removed_beside_a_coordinator_at_another_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, table = write_config(tmp_path), tmp_path / "table"
    new_table(table)
    record = encode_input_topics(InputTopics({"returns": first_read(SeenTopic(2, "id"))}))
    LocalStorage(table).create(INPUT_TOPICS_PATH, record)
    sign = table / SIGN
    os.makedirs(sign.parent, exist_ok=True)
    sign.write_text("other 0")
    monkeypatch.setattr("tidemark.stream_runtime.clock.SystemClock", lambda: Watched(sign))
    command = ["input", "remove-topic", "returns", "-c", str(file)]
    assert main(command) == 1
    assert "a coordinator serves" in capsys.readouterr().err
    assert (table / INPUT_TOPICS_PATH).read_bytes() == record
    sign.unlink()
    assert main(command) == 0
    assert (table / INPUT_TOPICS_PATH).read_bytes() != record
