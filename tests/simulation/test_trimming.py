"""Trimming end to end: what is deleted is not needed, and a thawed coordinator deletes nothing of others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.simulation.commit_path import CommitPath, MemoryWorker
from tests.simulation.scripted_epochs import GROUP_A, row
from tests.simulation.scripted_tagger import SHARDS, Tagged
from tidemark.commit_coordinator.calls.service import begin_response
from tidemark.commit_coordinator.commit import trimming
from tidemark.commit_coordinator.commit.context import Context, Report
from tidemark.commit_coordinator.commit.stored_documents import STORE, store_document
from tidemark.commit_coordinator.commit.trimming import Trimmer
from tidemark.epoch_protocol.batches import DataOp
from tidemark.epoch_protocol.entries import Counts, EpochPlanned, Produced, Topic, TransactionTagged
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServiceDecided,
    ServiceKind,
    ServiceOutcome,
    ServicePlanned,
)
from tidemark.epoch_protocol.state import CountedTagged
from tidemark.epoch_protocol.tombstones import TombstoneRange
from tidemark.hudi_format.table_config import TableType
from tidemark.stream_runtime.kafka.errors import LeaderChangingError
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec
from tidemark.stream_writer.tasks import run_task

EVERY = 3


class FollowUp:
    """Tells the trimmer of commits, as the product's listener does."""

    def __init__(self, trimmer: Trimmer) -> None:
        self._trimmer = trimmer
        self._manifest: list[CountedTagged] = []

    def committing(self, planned: EpochPlanned, fold: Fold) -> None:
        self._manifest = fold.manifest(planned.through)

    def committed(self, planned: EpochPlanned, report: Report | None) -> None:
        self._trimmer.committed(self._manifest)

    def rewinding(self) -> None:
        """Nothing of the trimmer's."""


class Trimmed:
    """A table that is trimmed every few epochs."""

    def __init__(self, folder: Path) -> None:
        self.path = CommitPath(folder, TableType.MERGE_ON_READ, ordered=True)
        self.path.client.admin().create_topics([TopicSpec(self.path.topics.keyed, 1)])
        self.trimmer = self.start()
        self._epochs = 0

    def start(self) -> Trimmer:
        topics = self.path.topics
        roles = {Topic.DATA: topics.data, Topic.INDEX: topics.index, Topic.KEYED: topics.keyed}
        admin = self.path.client.admin()
        made = Trimmer(admin, roles, topics.ledger_partition, topics.epochs_partition)
        self.path.start_coordinator()._listeners = [FollowUp(made)]
        self.trimmer = made
        return made

    def epoch(self, rows: Sequence[Tagged] | None = None) -> None:
        """One epoch of one row, then the trimmer's turn, a minute later."""
        self._epochs += 1
        op = DataOp.UPDATE if self._epochs > 1 else DataOp.INSERT
        self.keyed()
        self.path.tag(rows or [(row("a", self._epochs, self._epochs), op, GROUP_A)])
        self.path.run_until_idle()
        self.path.clock.advance(61.0)
        assert self.path.context is not None
        self.trimmer.run_if_due(self.path.context)

    def keyed(self) -> None:
        """One message in `keyed`, so that its positions exist."""
        self.path.broker.produce(TopicPartition(self.path.topics.keyed, 0), None, b"x", ())

    def starts(self) -> dict[str, int]:
        topics = self.path.topics
        names = (topics.data, topics.index, topics.keyed, topics.ledger, topics.epochs)
        admin = self.path.client.admin()
        return {name.partition(".")[2]: admin.start_offset(TopicPartition(name, 0)) for name in names}


@pytest.fixture
def trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trimmed:
    monkeypatch.setattr(trimming, "EPOCHS_BETWEEN", EVERY)
    monkeypatch.setattr(trimming, "SECONDS_BETWEEN", 3_600)
    return Trimmed(tmp_path)


def test_topics_are_trimmed_one_snapshot_behind_and_new_readers_agree(trimmed: Trimmed) -> None:
    reader = trimmed.path.fold_reader()
    for _ in range(EVERY):
        trimmed.epoch()
    assert set(trimmed.starts().values()) == {0}, "the first snapshot deletes nothing"
    reader.catch_up()
    for _ in range(EVERY):
        trimmed.epoch()
    starts = trimmed.starts()
    assert starts["data"] > 0
    assert starts["keyed"] == EVERY
    assert 0 < starts["epochs"] < trimmed.path.state().decisions_next
    for _ in range(2 * EVERY):
        trimmed.epoch()
    assert all(trimmed.starts()[name] > start for name, start in starts.items())
    reader.catch_up()
    assert reader.resets == 1, "it had fallen behind the snapshot"
    fresh = trimmed.path.fold_reader()
    fresh.catch_up()
    assert trimmed.path.context is not None
    running = trimmed.path.context.fold()
    assert fresh.fold.snapshot() == reader.fold.snapshot() == running.snapshot()
    assert trimmed.path.rows() == {"a": row("a", 4 * EVERY, 4 * EVERY)}


def test_a_table_of_slow_epochs_is_trimmed_by_time(trimmed: Trimmed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs of two minutes: what a topic holds is what came in a few minutes, not in hours."""
    monkeypatch.setattr(trimming, "EPOCHS_BETWEEN", 60)
    monkeypatch.setattr(trimming, "SECONDS_BETWEEN", 120)
    held = []
    for _ in range(12):
        trimmed.epoch()
        trimmed.path.clock.advance(61.0)
        starts, decisions_next = trimmed.starts(), trimmed.path.state().decisions_next
        held.append((trimmed._epochs - starts["keyed"], decisions_next - starts["epochs"]))
    assert max(epochs for epochs, _ in held[3:]) <= 2
    assert max(entries for _, entries in held[6:]) <= max(entries for _, entries in held[:6])
    snapshot = trimmed.path.state().last_snapshot
    assert snapshot is not None
    for _ in range(5):
        trimmed.path.clock.advance(600.0)
        assert trimmed.path.context is not None
        trimmed.trimmer.run_if_due(trimmed.path.context)
    after = trimmed.path.state().last_snapshot
    assert after is not None
    assert after.epoch == trimmed._epochs, "what was committed last"
    assert after.decision <= snapshot.decision + 1, "a table at rest takes no more snapshots"


def service_action(context: Context) -> None:
    """The entries and documents of one action, as a service runner appends and stores them."""
    term, number = context.term, context.fold().state.next_service
    plan = store_document(context.storage, b"plan %d" % number)
    outcomes = store_document(context.storage, b"outcomes %d" % number)
    context.log.append(
        ServicePlanned(term, number, ServiceKind.CLEAN_DATA, "20260101000000000", *plan, 0),
        ServiceDecided(term, number, "2", "3", *outcomes, 0),
        ServiceCommitted(term, number, "20260101000000000", "3", ServiceOutcome.DONE, 0),
    )


@pytest.mark.parametrize("epochs", [0, EVERY], ids=["never an epoch", "epochs before"])
def test_a_table_without_input_whose_services_go_on_is_trimmed_by_entries(
    trimmed: Trimmed, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    """Another engine writes a table whose stream is quiet for months: services act, and no epoch comes."""
    monkeypatch.setattr(trimming, "SECONDS_BETWEEN", 120)
    monkeypatch.setattr(trimming, "ENTRIES_BETWEEN", 60)
    for _ in range(epochs):
        trimmed.epoch()
    context = trimmed.path.context
    assert context is not None
    held, stored = [], []
    for _ in range(100):
        service_action(context)
        trimmed.path.clock.advance(300.0)
        trimmed.trimmer.run_if_due(context)
        held.append(context.fold().state.decisions_next - trimmed.starts()["epochs"])
        stored.append(len(context.storage.list(STORE)))
    assert max(held) <= 3 * 60
    assert max(stored) <= 100, "two copies, and the documents of what no copy covers"
    assert trimmed.path.state() == context.fold().state, "a new reader starts from the copy"


def test_a_clock_that_was_set_back_does_not_delay_what_entries_make_due(
    trimmed: Trimmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimming, "ENTRIES_BETWEEN", 20)
    for _ in range(EVERY):
        trimmed.epoch()
    context = trimmed.path.context
    assert context is not None
    before = context.fold().state.last_snapshot
    assert before is not None
    in_future = before.taken_ms + 86_400_000
    context.fold().state.last_snapshot = msgspec.structs.replace(before, taken_ms=in_future)
    for _ in range(20):
        service_action(context)
    trimmed.trimmer.run_if_due(context)
    after = context.fold().state.last_snapshot
    assert after is not None
    assert after.decision > before.decision


def test_documents_of_committed_epochs_go_and_the_two_snapshots_stay(trimmed: Trimmed) -> None:
    for _ in range(4 * EVERY):
        trimmed.epoch()
    assert len(trimmed.path.storage.list(STORE)) == 2
    trimmed.epoch()
    assert len(trimmed.path.storage.list(STORE)) == 3, "and the statuses of the epoch since"


def test_a_successor_starts_from_the_snapshot_and_trims_on(trimmed: Trimmed) -> None:
    for _ in range(2 * EVERY):
        trimmed.epoch()
    starts = trimmed.starts()
    trimmed.path.crash()
    trimmed.start()
    for _ in range(2 * EVERY):
        trimmed.epoch()
    assert all(trimmed.starts()[name] > start for name, start in starts.items())
    assert trimmed.path.rows()["a"]["v"] == 4 * EVERY


def put_back(trimmed: Trimmed, **deletions: int) -> None:
    """The broker was killed, and forgets so many deletions of each of these topics."""
    for role, count in deletions.items():
        trimmed.path.broker.put_start_back(TopicPartition(f"{trimmed.path.topics.table}.{role}", 0), count)


@pytest.mark.parametrize(
    "deletions",
    [
        {"epochs": 1, "ledger": 1},
        {"epochs": 2, "ledger": 2},
        {"epochs": 9, "ledger": 9, "data": 9, "index": 9, "keyed": 9},
        {"epochs": 1},
        {"epochs": 9},
        {"ledger": 9},
    ],
    ids=str,
)
def test_deletions_that_a_killed_broker_forgot_keep_nobody_from_starting(
    trimmed: Trimmed, deletions: dict[str, int]
) -> None:
    """The topics begin with a snapshot again whose document is gone, or with nothing before their entries.
    Topics may have other brokers: each forgets for itself.
    """
    for _ in range(4 * EVERY):
        trimmed.epoch()
    starts, before = trimmed.starts(), trimmed.path.state()
    trimmed.path.crash()
    put_back(trimmed, **deletions)
    assert all(trimmed.starts()[role] < starts[role] for role in deletions)
    fresh = trimmed.path.fold_reader()
    fresh.catch_up()
    assert fresh.fold.state == before
    trimmed.start()
    for _ in range(2 * EVERY):
        trimmed.epoch()
    assert all(trimmed.starts()[name] > start for name, start in starts.items())
    assert trimmed.path.rows() == {"a": row("a", 6 * EVERY, 6 * EVERY)}


def test_coordinators_that_live_for_one_epoch_trim_as_well(trimmed: Trimmed) -> None:
    for _ in range(2 * EVERY):
        trimmed.epoch()
        trimmed.path.crash()
        trimmed.start()
    starts = trimmed.starts()
    assert starts["data"] > 0
    assert starts["keyed"] == EVERY
    assert starts["ledger"] > 0
    for _ in range(2 * EVERY):
        trimmed.path.crash()
        trimmed.start()
        trimmed.epoch()
    assert all(trimmed.starts()[name] > start for name, start in starts.items())
    assert len(trimmed.path.storage.list(STORE)) <= 3
    assert trimmed.path.rows()["a"]["v"] == 4 * EVERY


def test_a_snapshot_of_before_that_names_no_positions_is_gone_on_from(
    trimmed: Trimmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of former versions hold neither time nor positions: the ledger is trimmed up to them."""
    with monkeypatch.context() as former:
        former.setattr(Trimmer, "_named", lambda *_: {})
        for _ in range(EVERY):
            trimmed.epoch()
    trimmed.path.crash()
    trimmed.start()
    for _ in range(EVERY):
        trimmed.epoch()
    starts = trimmed.starts()
    assert starts["ledger"] > 0
    assert starts["data"] == starts["keyed"] == 0
    for _ in range(EVERY):
        trimmed.epoch()
    assert all(start > 0 for start in trimmed.starts().values())


def test_batches_that_are_named_and_not_committed_survive_below_the_mark(trimmed: Trimmed) -> None:
    """Of two transactions that wrote side by side, the one that wrote first may count in a later epoch."""
    for _ in range(EVERY):
        trimmed.epoch()
    mark = trimmed.path.state().last_snapshot
    assert mark is not None
    assert mark.batches["data"]["0"] > 2
    parts = [Produced(role, 0, 2, 9, 1, 1, 0) for role in (Topic.DATA, Topic.TOMBSTONES)]
    late = TransactionTagged(0, "late", 0, {}, [], parts, Counts(), 1, "s")
    trimmed.trimmer._delete(mark, [CountedTagged(99, late)])
    starts = trimmed.starts()
    assert starts["data"] == 2
    assert starts["index"] == mark.batches["index"]["0"]


def test_tombstones_without_a_leader_keep_no_other_topic_from_being_trimmed(
    trimmed: Trimmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, admin = trimmed.path.topics.tombstones, trimmed.trimmer.admin
    admin.create_topics([TopicSpec(topic, 3)])
    trimmed.trimmer.topics[Topic.TOMBSTONES] = topic
    assert trimmed.path.context is not None
    lanes = {str(lane): [TombstoneRange(0, 0, 5, "")] for lane in range(3)}
    trimmed.path.context.fold().state.tombstones.lanes = lanes
    start_offset, asked = admin.start_offset, list[int]()

    def without_leader(at: TopicPartition) -> int:
        if at.topic == topic:
            asked.append(at.partition)
            if at.partition == 1:
                raise LeaderChangingError(f"{topic}[1] has no leader now")
        return start_offset(at)

    monkeypatch.setattr(admin, "start_offset", without_leader)
    for _ in range(2 * EVERY):
        trimmed.epoch()
    assert asked == [0, 1] * 2, "each answer that does not come holds the loop up"
    starts = trimmed.starts()
    assert all(starts[name] > 0 for name in ("data", "keyed", "ledger", "epochs"))
    snapshot = trimmed.path.state().last_snapshot
    assert snapshot is not None
    assert snapshot.batches["tombstones"] == {"0": 0}


def test_a_thawed_coordinator_removes_no_document_of_its_successor(trimmed: Trimmed) -> None:
    for _ in range(2 * EVERY - 1):
        trimmed.epoch()
    path, old, old_trimmer = trimmed.path, trimmed.path.context, trimmed.trimmer
    assert old is not None
    path.tag([(row("a", 50, 50), DataOp.UPDATE, GROUP_A)])
    path.run_until_idle()
    path.clock.advance(61.0)
    delete = Trimmer._delete

    def frozen_here(self: Trimmer, *args: object) -> None:
        Trimmer._delete = delete  # type: ignore[method-assign]
        path.crash()
        trimmed.start()
        for _ in range(2 * EVERY):
            trimmed.epoch()
        path.tag([(row("a", 60, 60), DataOp.UPDATE, GROUP_A)])
        path.step_coordinator()
        view = path.open_attempt()
        tasks = path.plan_tasks(begin_response(view, SHARDS), 2)
        outcomes = [run_task(task, MemoryWorker(path.client, path.clock)) for task in tasks]
        assert path.report(1 + path.state().committed.epoch, 1, view.planned.instant or "", outcomes)
        path.step_coordinator()
        delete(self, *args)  # type: ignore[arg-type]

    Trimmer._delete = frozen_here  # type: ignore[method-assign, assignment]
    try:
        old_trimmer.run_if_due(old)
    finally:
        Trimmer._delete = delete  # type: ignore[method-assign]
    assert path.state().decided is not None
    path.run_until_idle()
    assert path.rows() == {"a": row("a", 60, 60)}
    assert path.fold_reader().catch_up()
