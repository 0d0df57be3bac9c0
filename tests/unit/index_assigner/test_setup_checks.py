"""What does not fit together is said before anything is read: topics, partitions, formats, stages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.unit.index_assigner.shuffle_world import ORDERS
from tidemark.config import TableConfigFile, load_config
from tidemark.config.model import InputPartitioning
from tidemark.epoch_protocol.entries import Stage
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.index_assigner.adapters import (
    TOPICS_RECORD,
    LookupGate,
    NotAssigningError,
    check_topics,
    snapshot_loader,
)
from tidemark.index_assigner.bootstrap import AssignerService, Ports, shuffle_work
from tidemark.index_assigner.failpoints import AssignerFailpoint, claim_failpoint, failpoint_of
from tidemark.ledger_client.topics import topic_specs
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.kafka.ledger_transaction import LedgerStep
from tidemark.stream_runtime.kafka.ports import TopicSpec


class Setup:
    def __init__(self, folder: Path, inputs: str = "[in]") -> None:
        (folder / "o.avsc").write_text(ORDERS.avro_json)
        (folder / "o.yaml").write_text(
            "table: {name: orders, path: ./table, record_key: [id], partition: [day], ordering: at, "
            "schema: o.avsc, index: {shards: 4, lanes: 2}}\n"
            f"input: {{topics: {inputs}}}\n"
            "kafka: {bootstrap.servers: 'localhost:1'}\n"
            "state: {path: ./state}\n"
        )
        self.config: TableConfigFile = load_config(folder / "o.yaml", {})
        self.storage = LocalStorage(str(folder / "table"))
        self.client = MemoryKafkaClient(MemoryBroker(ManualClock(), SeededIds(1)))
        self.admin = self.client.admin()

    def create(self, **inputs: int) -> None:
        self.admin.create_topics([*topic_specs(self.config), *(TopicSpec(t, n) for t, n in inputs.items())])

    def check(self) -> dict[str, int]:
        return check_topics(self.config, self.admin, self.storage)

    def service(self, stages: set[Stage], **changes: object) -> AssignerService:
        config = replace(self.config, input=replace(self.config.input, **changes))  # type: ignore[arg-type]
        clock = ManualClock()
        failpoints = FailpointRegistry(AssignerFailpoint)
        ports = Ports(self.client, self.storage, clock, SeededIds(2), failpoints)
        return AssignerService(config, ports, dict.fromkeys(stages, shuffle_work))


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_all_topics_are_there(setup: Setup):
    setup.create(**{"in": 3})
    assert setup.check()["orders.keyed"] == 2


def test_a_missing_topic_is_named(setup: Setup):
    with pytest.raises(SetupError, match=r"topic orders.keyed does not exist.*coordinator"):
        setup.check()


def test_another_number_of_partitions_than_configured(setup: Setup):
    setup.admin.create_topics([TopicSpec("orders.keyed", 5)])
    for spec in topic_specs(setup.config):
        if spec.name != "orders.keyed":
            setup.admin.create_topics([spec])
    setup.admin.create_topics([TopicSpec("in", 1)])
    with pytest.raises(SetupError, match=r"orders\.keyed has 5 partitions.*set up with 2"):
        setup.check()


def test_the_input_topics_are_the_coordinator_s_business(setup: Setup):
    setup.create(**{"in": 4})
    setup.storage.create(TOPICS_RECORD, json.dumps({"in": 3}).encode())
    assert "in" not in setup.check()


def test_partitioning_by_shard_has_no_shuffle_stage(setup: Setup):
    with pytest.raises(SetupError, match="--stages assign"):
        setup.service({Stage.SHUFFLE}, partitioning=InputPartitioning.SHARD)


def test_a_lookup_before_the_stage_runs_may_be_tried_again():
    with pytest.raises(NotAssigningError):
        LookupGate().Lookup(None, None)  # type: ignore[arg-type]


def test_a_stored_snapshot_must_have_the_named_content(setup: Setup):
    setup.storage.create("x/fold.json", b"content")
    load = snapshot_loader(setup.storage)
    with pytest.raises(Exception, match="does not have the content"):
        load("x/fold.json", "0" * 64)
    assert (
        load("x/fold.json", "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73") == b"content"
    )


@pytest.mark.parametrize("stage", list(Stage))
@pytest.mark.parametrize("step", ["claim", "begun", "batches", "entry", "commit", "committed"])
def test_every_step_of_every_stage_has_its_failpoint(stage: Stage, step: str) -> None:
    place = claim_failpoint(stage) if step == "claim" else failpoint_of(stage, LedgerStep(step))
    assert place.value == f"{stage.value}_{step}"


@pytest.mark.parametrize("content", [b"\xff", b"[1]", b'{"orders.keyed": "8"}'])
def test_a_damaged_record_of_topics_is_named(setup: Setup, content: bytes) -> None:
    setup.storage.create(TOPICS_RECORD, content)
    with pytest.raises(CorruptFileError, match=r"topics\.json is damaged"):
        setup.check()
