"""Everything that earlier commits stored and published, read with today's code and without Kafka: entries of
ledger and decisions, batches, documents, dead letters, caches. tests/e2e/test_recorded_table.py carries the
same tables on.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.golden.recipes.recorded_state import cache_content, read_lines
from tests.recorded_table import Recording, recordings, unpack
from tidemark.commit_coordinator.commit.stored_documents import STORE, load_document
from tidemark.commit_coordinator.commit.stored_report import read_report
from tidemark.commit_coordinator.opening.topics_setup import LANE_SOURCE, RECORD
from tidemark.config import load_config
from tidemark.epoch_protocol.batches import (
    DATA_COLUMNS,
    INDEX_COLUMNS,
    KEYED_COLUMNS,
    TOMBSTONE_COLUMNS,
    BatchHeader,
    decode_batch,
)
from tidemark.epoch_protocol.dead_letter_headers import HEADER_REPLAYED
from tidemark.epoch_protocol.entries import (
    SnapshotTaken,
    Topic,
    TransactionTagged,
    decode_decision,
    decode_ledger_entry,
)
from tidemark.epoch_protocol.fold import Fold, Verdict, has_begun
from tidemark.epoch_protocol.input_topics import INPUT_TOPICS_PATH, InputTopics
from tidemark.epoch_protocol.lanes import shuffle_lane
from tidemark.epoch_protocol.state import FoldState
from tidemark.epoch_protocol.tombstones import CommittedTombstones
from tidemark.hudi_format.storage.documents import read_document
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.index_assigner.assign_stage import table_identity
from tidemark.ledger_client.dead_letters import DeadLetter
from tidemark.ledger_client.named_batches import NamedRange, collect_named
from tidemark.ledger_client.table_identity import SERVED_BY
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.model import Message, TopicPartition
from tidemark.table_verification.verified_state import load_state

TOPICS = TopicNames("accounts")
COLUMNS = {
    TOPICS.keyed: KEYED_COLUMNS,
    TOPICS.data: DATA_COLUMNS,
    TOPICS.index: INDEX_COLUMNS,
    TOPICS.tombstones: TOMBSTONE_COLUMNS,
}


class Recorded:
    """One recording with its messages by topic-partition."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.storage = LocalStorage(recording.table)
        self.messages: dict[TopicPartition, list[Message]] = defaultdict(list)
        for message in read_lines(recording.expected / "topics.jsonl"):
            self.messages[message.topic_partition].append(message)

    def of(self, topic: str) -> Iterator[Message]:
        for at, messages in self.messages.items():
            if at.topic == topic:
                yield from messages

    def fold(self, snapshot: int = -1) -> Fold:
        """Folded from the newest snapshot that is left, as every service does when it starts, or another one
        whose document is there: a killed broker forgot that older ones were deleted.
        """
        decisions = [(m.offset, decode_decision(m.value or b"")) for m in self.of(TOPICS.epochs)]
        begin, first = decisions[0]
        assert isinstance(first, SnapshotTaken), "the recipe records until the decisions were trimmed"
        there = (entry for _, entry in decisions if isinstance(entry, SnapshotTaken))
        taken = [entry for entry in there if self.storage.exists(entry.path)][snapshot]
        fold = Fold.restore(load_document(self.storage, taken.path, taken.sha256))
        fold.state.decisions_next = max(fold.state.decisions_next, begin)
        decisions = [each for each in decisions if each[0] >= fold.state.decisions_next]
        ledger = [(m.offset, decode_ledger_entry(m.value or b"")) for m in self.of(TOPICS.ledger)]
        ledger = [each for each in ledger if each[0] >= fold.state.ledger_next]
        while ledger or decisions:
            before = len(ledger), len(decisions)
            while ledger and fold.apply_ledger(*ledger[0]) not in WAITS:
                del ledger[0]
            while decisions and fold.apply_decision(*decisions[0]) not in WAITS:
                del decisions[0]
            assert (len(ledger), len(decisions)) != before, "entries wait for each other"
        return fold

    def files(self, folder: str) -> list[str]:
        return [info.path for info in self.storage.list(folder)]


WAITS = (Verdict.WAIT_FOR_LEDGER, Verdict.WAIT_FOR_DECISIONS)


@pytest.fixture(scope="module", params=recordings())
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(unpack(request.param, tmp_path_factory.mktemp("recorded")))


def test_recorded_configuration_is_accepted(recorded: Recorded):
    config = load_config(recorded.recording.config)
    assert (config.table.name, config.table.ordering, config.table.index.lanes) == ("accounts", "at", 2)


def of_fields_then(state: FoldState) -> FoldState:
    """The state without what later versions added to it and work out from the same entries."""
    found = msgspec.json.decode(msgspec.json.encode(state), type=FoldState)
    for lane in [*found.shuffle_lanes.values(), *found.assign_lanes.values()]:
        lane.begun = False
    found.rewinds_in_row = 0
    found.last_snapshot = None
    found.tombstones = CommittedTombstones()
    return found


def check_state_of_a_former_version(state: FoldState, then: FoldState) -> None:
    """One that kept neither identities nor ranges of tombstones, nor which lanes have begun."""
    assert of_fields_then(state) == then
    assert state.seen is None, "the version that wrote it kept no identities"
    assert state.known().handled == then.handled
    assert not state.tombstones.whole, "a former version folded the first entries: it kept no ranges"
    assert {lane: has_begun(held) for lane, held in then.assign_lanes.items()} == {
        lane: held.begun for lane, held in state.assign_lanes.items()
    }


def test_recorded_entries_fold_to_the_recorded_state(recorded: Recorded):
    state = recorded.fold().state
    then = Fold.restore((recorded.recording.expected / "fold.json").read_bytes()).state
    if then.ledger:
        assert state == then
        assert state.seen is not None
        assert state.tombstones.whole
        assert state.tombstones.lanes
    else:
        check_state_of_a_former_version(state, then)
    decided = recorded.recording.facts["decided"]
    assert state.planned is not None
    assert state.decided is not None
    assert state.planned.instant == decided["instant"]
    assert state.decided.epoch == decided["epoch"] == state.committed.epoch + 1
    assert state.decided.data_completion == decided["data_completion"]
    assert state.decided.metadata_completion == decided["metadata_completion"]
    assert state.generation > 0, "the recipe has another engine write between epochs"
    assert any(each.offset > state.planned.through for each in state.tagged), "nothing is left over"


def test_any_recorded_snapshot_folds_to_the_same_state(recorded: Recorded):
    oldest, newest = recorded.fold(0).state, recorded.fold().state
    if not newest.tombstones.whole:
        # Documents of a former version keep no ranges: what is before the first one is taken for committed.
        newest.tombstones = oldest.tombstones
    assert oldest == newest


def test_recorded_batches_are_what_their_entries_say(recorded: Recorded):
    names = {Topic.KEYED: TOPICS.keyed, Topic.DATA: TOPICS.data}
    names |= {Topic.INDEX: TOPICS.index, Topic.TOMBSTONES: TOPICS.tombstones}
    seen: dict[Topic, int] = defaultdict(int)
    for message in recorded.of(TOPICS.ledger):
        entry = decode_ledger_entry(message.value or b"")
        for produced in getattr(entry, "produced", []):
            at = TopicPartition(names[produced.topic], produced.partition)
            if recorded.messages[at][0].offset > produced.first:
                continue  # trimmed
            assert collect_named(
                recorded.messages[at], [NamedRange(entry.nonce, message.offset, produced)]
            ), message
            seen[produced.topic] += 1
    assert set(seen) == set(names), seen


@pytest.mark.parametrize("topic", COLUMNS)
def test_recorded_batches_decode(recorded: Recorded, topic: str):
    count = 0
    for message in recorded.of(topic):
        header, batch = BatchHeader.decode(message.headers), decode_batch(message.value or b"")
        count += batch.num_rows
        assert batch.num_rows == header.rows
        ours = pa.schema([batch.schema.field(name) for name in COLUMNS[topic].names])
        assert ours == COLUMNS[topic]
    assert count > 0


def test_recorded_dead_letters_are_read(recorded: Recorded):
    messages = list(recorded.of(TOPICS.dead_letter))
    notes = [each for each in messages if HEADER_REPLAYED in dict(each.headers)]
    letters = [DeadLetter.of(message) for message in messages if message not in notes]
    facts = recorded.recording.facts
    assert len(letters) + _broken_and_unread(recorded) == facts["broken"]
    assert {each.reason for each in letters} == {"not-json", "unknown-field", *facts.get("more_reasons", ())}
    if "more_reasons" in facts:
        assert notes
        assert max(each.replays for each in letters) == 1
        assert {part for each in letters for part in each.cut} == {"key", "value", "headers"}
    assert all(each.topic == "accounts-in" and each.offset >= 0 for each in letters)


def _broken_and_unread(recorded: Recorded) -> int:
    """Records that were sent and not read when everything was killed, and are refused once they are."""
    lanes = recorded.fold().state.shuffle_lanes
    unread = [
        message
        for message in recorded.of("accounts-in")
        if message.offset >= lanes[shuffle_lane(message.topic, message.partition)].next
    ]
    return sum(message.value is not None and not _is_account(message.value) for message in unread)


def _is_account(value: bytes) -> bool:
    try:
        return set(json.loads(value)) <= {"id", "region", "at", "balance", "gone"}
    except ValueError:
        return False


def test_recorded_documents_of_the_table_are_read(recorded: Recorded):
    storage, state = recorded.storage, recorded.fold().state
    assert state.decided is not None
    statuses = load_document(storage, state.decided.statuses_path, state.decided.statuses_sha256)
    assert state.planned is not None
    assert state.planned.instant is not None
    report = read_report(statuses, state.planned.instant)
    assert report.data
    assert report.metadata_logs
    for path in recorded.files(STORE):
        assert hashlib.sha256(storage.read(path)).hexdigest() in path
    if storage.exists(INPUT_TOPICS_PATH):
        record = read_document(storage, INPUT_TOPICS_PATH, InputTopics)
        assert record.topics["accounts-in"].partitions == 2
    else:
        assert json.loads(storage.read(RECORD))["accounts-in"] == 2
    assert json.loads(storage.read(LANE_SOURCE)) == {"topic": TOPICS.keyed}
    assert storage.read(SERVED_BY)
    verified = load_state(storage)
    assert verified is not None
    assert verified.groups


def test_recorded_cache_is_read(recorded: Recorded, tmp_path: Path):
    identity = f"{table_identity(recorded.storage, SystemIds())} 4"
    expected: dict[str, Any] = json.loads((recorded.recording.expected / "cache.json").read_text())
    assert cache_content(recorded.recording.folder / "state" / "index-0", identity) == expected
    assert expected["entries"]
    assert expected["tombstones"]
    assert expected["shards"]


def test_recorded_tagging_of_the_left_over_input_is_whole(recorded: Recorded):
    """What counts and no committed epoch covers: its sums are those that the fold had."""
    state = recorded.fold().state
    entries = [(each.offset, each.entry) for each in state.tagged]
    assert all(isinstance(entry, TransactionTagged) for _, entry in entries)
    assert sum(entry.counts.input for _, entry in entries) > 0
