"""What table services stored in earlier versions is read by today's code, byte for byte where it is written
anew, and what was open is carried on.
"""

from __future__ import annotations

import json
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testing.kafka.partition_log import StoredRecord, Visibility
from tests.golden.recipes.recorded_services import GROUPS, SEED
from tests.golden.recipes.recorded_state import read_lines
from tests.recorded_table import SERVICE_RECORDINGS, service_recordings
from tests.simulation.clocked_storage import ClockedStorage
from tests.simulation.watched_life import WatchedLife
from tidemark.commit_coordinator.commit.own_services import DecidedService, dead_instants_of
from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.epoch_protocol.entries import decode_decision
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServiceDecided,
    ServiceKind,
    ServiceOutcome,
    ServicePlanned,
    ServicesPaused,
    ServiceVoided,
)
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_services.archive_planning import decode_archive_plan
from tidemark.hudi_format.table_services.operations import decode_clean, decode_outcomes, decode_plan
from tidemark.hudi_format.table_services.records import requested_clean, requested_compaction
from tidemark.hudi_format.timeline import (
    DATA_ROOT,
    METADATA_TABLE_ROOT,
    Action,
    Instant,
    State,
    load_timeline,
)
from tidemark.hudi_format.timeline.avro_container import decode_container
from tidemark.hudi_format.timeline.clean_records import encode_clean_plan
from tidemark.hudi_format.timeline.service_records import encode_compaction_plan
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition
from tidemark.stream_writer.epoch_tasks import table_facts, task_planner
from tidemark.table_verification.verify import verify_table

COMPACTIONS = (ServiceKind.COMPACT_DATA, ServiceKind.COMPACT_INDEX)
CLEANS = (ServiceKind.CLEAN_DATA, ServiceKind.CLEAN_INDEX)
SECONDS_MAX = 60
READERS: dict[ServiceKind, Any] = {
    **dict.fromkeys(COMPACTIONS, decode_plan),
    **dict.fromkeys(CLEANS, decode_clean),
    ServiceKind.ARCHIVE: decode_archive_plan,
    ServiceKind.ROLLBACK: dead_instants_of,
}


class Recorded:
    """One recording, unpacked."""

    def __init__(self, name: str, place: Path) -> None:
        with tarfile.open(SERVICE_RECORDINGS / name / "recording.tar.xz") as archive:
            archive.extractall(place, filter="tar")
        self.facts = json.loads((SERVICE_RECORDINGS / name / "facts.json").read_text())
        self.folder, self.expected = place / "table", place / "expected"
        self.storage = LocalStorage(self.folder)
        self.messages: dict[str, list[Message]] = defaultdict(list)
        for message in read_lines(self.expected / "topics.jsonl"):
            self.messages[message.topic].append(message)
        self.fold = msgspec.json.decode((self.expected / "fold.json").read_bytes(), type=FoldState)
        self.decisions = [decode_decision(message.value or b"") for message in self.messages["t.epochs"]]

    def entries(self, kind: type[Any]) -> list[Any]:
        return [entry for entry in self.decisions if isinstance(entry, kind)]

    def document(self, path: str, sha256: str) -> bytes:
        return load_document(self.storage, path, sha256)

    def fill(self, life: WatchedLife) -> None:
        """The life has this table and its topics in the stead of its own."""
        for topic, end in self.facts["ends"].items():
            log = life.broker._logs[TopicPartition(topic, 0)]
            log._records = [StoredRecord(None, None, (), 0, 0, Visibility.MARKER) for _ in range(end)]
            for message in self.messages[topic]:
                log._records[message.offset] = StoredRecord(
                    message.key,
                    message.value,
                    message.headers,
                    message.timestamp_ms,
                    -1,
                    Visibility.COMMITTED,
                )
        life.clock.advance(self.facts["clock_ms"] / 1_000 - life.clock.now_ms() / 1_000 + 1.0)
        life.lies_at(ClockedStorage(self.folder, life.clock))
        names = life.topics
        life.plan_tasks = task_planner(
            table_facts(read_table_config(self.storage), str(self.folder), {}, names.data, names.index)
        )


@pytest.fixture(params=service_recordings())
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Recorded:
    return Recorded(request.param, tmp_path / "recorded")


def test_every_kind_of_entry_of_services_is_in_it(recorded: Recorded) -> None:
    planned = {entry.service: entry.kind for entry in recorded.entries(ServicePlanned)}
    ends = recorded.entries(ServiceCommitted)
    assert {planned[entry.service] for entry in ends} == set(ServiceKind)
    assert {entry.outcome for entry in ends} == set(ServiceOutcome)
    assert any(entry.undecides for entry in recorded.entries(ServiceVoided))
    assert [entry.reason for entry in recorded.entries(ServicesPaused)] == ["upkeep of the disk"]


def test_the_fold_comes_to_the_recorded_state(recorded: Recorded, tmp_path: Path) -> None:
    life = WatchedLife(tmp_path / "empty", groups=GROUPS, seed=SEED)
    recorded.fill(life)
    now = msgspec.json.decode(Fold(life.state()).snapshot())
    before = json.loads((recorded.expected / "fold.json").read_bytes())
    assert {name: now[name] for name in before} == before
    open_now = life.state().services
    assert open_now[ServiceKind.COMPACT_DATA].decided is not None
    assert len(open_now) > 1
    assert life.state().services_paused


def test_every_stored_plan_and_outcome_is_read(recorded: Recorded) -> None:
    kinds: dict[int, ServiceKind] = {}
    for planned in recorded.entries(ServicePlanned):
        kinds[planned.service] = planned.kind
        document = recorded.document(planned.plan_path, planned.plan_sha256)
        assert READERS[planned.kind](document, planned.plan_path)
    for decided in recorded.entries(ServiceDecided):
        content = msgspec.json.decode(
            recorded.document(decided.statuses_path, decided.statuses_sha256), type=DecidedService
        )
        assert content.kind is kinds[decided.service]
        if content.kind in COMPACTIONS:
            outcomes = decode_outcomes(content.outcomes, decided.statuses_path)
            assert {ticket.path for ticket in content.tickets} == {
                outcome.ticket.path for outcome in outcomes if outcome.ticket is not None
            }


def test_what_a_successor_writes_on_the_timelines_has_the_recorded_bytes(recorded: Recorded) -> None:
    """A decision is carried out by whoever is there: equal decisions give equal bytes."""
    compared = set()
    for planned in recorded.entries(ServicePlanned):
        if planned.kind not in (*COMPACTIONS, *CLEANS):
            continue
        is_clean = planned.kind in CLEANS
        is_index = planned.kind in (ServiceKind.COMPACT_INDEX, ServiceKind.CLEAN_INDEX)
        action, root = Action.CLEAN if is_clean else Action.COMPACTION, DATA_ROOT
        if is_index:
            root = METADATA_TABLE_ROOT
        path = instant_path(Instant(planned.instant, action, State.REQUESTED), root)
        if not recorded.storage.exists(path):
            continue  # archived, void, or not begun
        [decided] = [each for each in recorded.entries(ServiceDecided) if each.service == planned.service]
        document = recorded.document(decided.statuses_path, decided.statuses_sha256)
        plan = msgspec.json.decode(document, type=DecidedService).plan
        on_timeline = recorded.storage.read(path)
        if is_clean:
            # The recipe's folder is in it.
            base = decode_container(on_timeline, path)["filePathsToBeDeletedPerPartition"]
            some = next(iter(next(iter(base.values()))))["filePath"]
            recorded_at = some.rpartition("/table/")[0] + "/table"
            content = encode_clean_plan(requested_clean(decode_clean(plan, path), recorded_at))
        else:
            content = encode_compaction_plan(requested_compaction(decode_plan(plan, path)))
        assert content == on_timeline, planned.kind
        compared.add(planned.kind)
    assert compared >= set(COMPACTIONS)


def test_archives_and_base_files_of_both_tables_are_read(recorded: Recorded) -> None:
    for root in (DATA_ROOT, METADATA_TABLE_ROOT):
        archive = load_timeline(recorded.storage, root).archive
        assert archive is not None
        assert archive.identities()
    index = [info.name for info in recorded.storage.list(RECORD_INDEX_FOLDER)]
    assert any(name.endswith(".hfile") and "-0-0_0" not in name for name in index)


def test_a_recorded_table_is_carried_on(recorded: Recorded, tmp_path: Path) -> None:
    """The decided action and the other open ones end, what is tagged is committed, all rows are there; then
    services run again.
    """
    life = WatchedLife(tmp_path / "empty", groups=GROUPS, seed=SEED)
    recorded.fill(life)
    numbers = [held.planned.service for held in recorded.fold.services.values()]
    for _ in range(SECONDS_MAX):
        life.pass_second()
        if life.ended().keys() >= set(numbers):
            break
    decided = recorded.fold.services[ServiceKind.COMPACT_DATA].planned.service
    assert isinstance(life.ended()[decided], ServiceCommitted | ServiceVoided)
    assert life.ended().keys() >= set(numbers)
    life.settle()
    assert life.rows() == recorded.facts["rows"]
    assert verify_table(recorded.storage, lambda _: None).agrees
    next_service = life.state().next_service
    assert life.coordinator is not None
    life.coordinator.pause_services(False, "")
    for _ in range(SECONDS_MAX):
        life.pass_second()
        if any(number >= next_service for number in life.ended()):
            break
    assert any(
        number >= next_service and isinstance(end, ServiceCommitted) for number, end in life.ended().items()
    )
    assert life.rows() == recorded.facts["rows"]
