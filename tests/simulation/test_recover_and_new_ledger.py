"""`tidemark recover` after a death at every step; `table adopt --new-ledger` after the topics were lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

import tidemark.commit_coordinator.offline.new_ledger as new_ledger_module
from testing.clock import ManualClock
from tests.simulation.commit_path import CommitPath
from tests.simulation.other_engine import OtherEngine
from tests.simulation.recorded_input import recorded_input
from tests.simulation.scripted_epochs import check_end, first_epoch, second_epoch
from tests.simulation.scripted_tagger import TABLE
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.failpoints import SERVICE_FAILPOINTS, CoordinatorFailpoint
from tidemark.commit_coordinator.offline.moved_table import take_over_moved
from tidemark.commit_coordinator.offline.new_ledger import PendingWriteError, check_new_ledger, new_ledger
from tidemark.commit_coordinator.offline.recovery import recover
from tidemark.commit_coordinator.opening.ledger_identity import MovedOrCopiedError, ledger_id, location_of
from tidemark.commit_coordinator.opening.ledger_record import LedgerRecorder
from tidemark.commit_coordinator.opening.takeover import take_over
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.entries import TableLocation
from tidemark.epoch_protocol.input_topics import (
    INPUT_TOPICS_PATH,
)
from tidemark.hudi_format.commit.heartbeat import heartbeat_path
from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.errors import LockHeldError, UnsupportedTableError
from tidemark.hudi_format.model import instant_from_ms
from tidemark.hudi_format.partitioned_lanes import LANE_FUNCTION_PATH
from tidemark.hudi_format.publication.locate import open_publication, read_lock
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.hudi_format.timeline import Action, load_timeline
from tidemark.hudi_format.validation import check_servable
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.table_identity import known_ledger_id
from tidemark.stream_runtime.failpoint import FailpointAction, FailpointHitError
from tidemark.stream_runtime.kafka.ports import MissingTopicError, TopicPartition, TopicSpec
from tidemark.table_verification.verify import verify_table

BETWEEN_EPOCHS = (
    CoordinatorFailpoint.AFTER_VOIDED,
    CoordinatorFailpoint.AFTER_ROLLED_BACK,
    CoordinatorFailpoint.BEFORE_EPOCH_PLANNED,
    CoordinatorFailpoint.AFTER_EPOCH_COMMITTED,
)
DECIDED = (
    CoordinatorFailpoint.AFTER_COMMIT_DECIDED,
    CoordinatorFailpoint.BEFORE_METADATA_COMPLETED,
    CoordinatorFailpoint.AFTER_METADATA_COMMIT,
    CoordinatorFailpoint.AFTER_DATA_COMMIT,
    CoordinatorFailpoint.BEFORE_EPOCH_COMMITTED,
)


def die_at(path: CommitPath, failpoint: CoordinatorFailpoint) -> None:
    path.failpoints.arm(failpoint, 1, FailpointAction.RAISE)
    with pytest.raises(FailpointHitError):
        path.run_until_idle()
    path.crash()


@pytest.mark.parametrize(
    "failpoint", [f for f in CoordinatorFailpoint if f not in BETWEEN_EPOCHS and f not in SERVICE_FAILPOINTS]
)
def test_recover_leaves_nothing_pending_and_the_lock_free(
    path: CommitPath, config: TableConfigFile, failpoint: CoordinatorFailpoint
):
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    second_epoch(path)
    die_at(path, failpoint)
    done = recover(config, path.client, path.storage, path.clock, path.ids)
    assert done.finished == (2 if failpoint in DECIDED else None)
    assert done.voided == (() if failpoint in DECIDED else (2,))
    assert load_timeline(path.storage).pending() == ()
    assert read_lock(path.storage) is None
    check_servable(path.storage)
    assert verify_table(path.storage, lambda _: None).agrees
    path.run_until_idle()
    check_end(path)


def test_recover_takes_a_decision_back_that_cannot_be_carried_out(path: CommitPath, config: TableConfigFile):
    """The lock was deleted by hand, and another engine committed."""
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    die_at(path, CoordinatorFailpoint.BEFORE_METADATA_COMPLETED)
    path.storage.delete_tree(".hoodie/lock")
    OtherEngine(path.storage, path.clock, path.action).commit()
    done = recover(config, path.client, path.storage, path.clock, path.ids)
    assert (done.finished, done.voided) == (None, (2,))
    assert load_timeline(path.storage).pending() == ()
    assert read_lock(path.storage) is None
    assert verify_table(path.storage, lambda _: None).agrees
    assert path.state().generation == 1
    go_on(path)
    second_epoch(path)
    path.run_until_idle()
    check_end(path)


def test_recover_of_a_quiet_table_changes_no_row_and_may_be_repeated(
    path: CommitPath, config: TableConfigFile
):
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    before = path.rows()
    for _ in range(2):
        done = recover(config, path.client, path.storage, path.clock, path.ids)
        assert (done.finished, done.voided) == (None, ())
    assert path.rows() == before
    second_epoch(path)
    path.run_until_idle()
    check_end(path)


def test_recover_waits_for_no_other_engine_but_says_that_it_holds_the_lock(
    path: CommitPath, config: TableConfigFile
):
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    path.storage.create(".hoodie/lock", b"")
    with pytest.raises(LockHeldError, match="held by another writer"):
        recover(config, path.client, path.storage, path.clock, path.ids)
    assert path.storage.exists(".hoodie/lock")


def test_recover_without_a_ledger_names_the_way_out(path: CommitPath, config: TableConfigFile):
    lose_topics(path)
    with pytest.raises(MissingTopicError, match="t.ledger.*--new-ledger"):
        recover(config, path.client, path.storage, path.clock, path.ids)


def lose_topics(path: CommitPath) -> None:
    path.crash()
    path.client.admin().delete_topics([path.topics.ledger, path.topics.epochs, path.topics.data])


def go_on(path: CommitPath) -> None:
    """The script's assigner reads the new fold, as a real one does."""
    path.tagger.claim_anew(path.state())


def test_new_ledger_goes_on_after_the_newest_epoch(path: CommitPath, config: TableConfigFile):
    first_epoch(path)
    path.run_until_idle()
    lose_topics(path)
    begun = new_ledger(config, path.client, path.storage, path.clock, path.ids)
    assert begun.epoch == 1
    assert begun.rolled_back == []
    state = path.state()
    assert (state.committed.epoch, state.committed.instant) == (1, begun.instant)
    assert state.generation > 1_000_000
    go_on(path)
    second_epoch(path)
    path.run_until_idle()
    check_end(path)
    assert path.state().committed.epoch == 2
    result = verify_table(path.storage, lambda _: None)
    assert result.agrees
    assert result.commits.ledgers == 1


@pytest.mark.parametrize(
    "failpoint", [CoordinatorFailpoint.AFTER_INFLIGHT, CoordinatorFailpoint.AFTER_METADATA_COMMIT]
)
def test_new_ledger_rolls_back_what_the_dead_coordinator_left_and_frees_its_lock(
    path: CommitPath, config: TableConfigFile, failpoint: CoordinatorFailpoint
):
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    die_at(path, failpoint)
    lose_topics(path)
    with pytest.raises(PendingWriteError, match="two minutes"):
        new_ledger(config, path.client, path.storage, path.clock, path.ids)
    (pending,) = load_timeline(path.storage).pending()
    path.clock.advance(121)
    begun = new_ledger(config, path.client, path.storage, path.clock, path.ids)
    assert begun.rolled_back == [pending.requested]
    assert load_timeline(path.storage).find(pending.requested) is None
    assert read_lock(path.storage) is None
    go_on(path)
    second_epoch(path)
    path.run_until_idle()
    check_end(path)


def test_new_ledger_rolls_back_an_overwrite_of_another_engine_that_died(
    path: CommitPath, config: TableConfigFile
):
    first_epoch(path)
    path.run_until_idle()
    lose_topics(path)
    by, instant = Unfenced(path.storage), instant_from_ms(path.clock.now_ms())
    path.storage.touch(heartbeat_path(instant))
    create_inflight(by, create_requested(by, instant, Action.REPLACE_COMMIT))
    with pytest.raises(PendingWriteError, match=instant):
        new_ledger(config, path.client, path.storage, path.clock, path.ids)
    path.storage.clock = ManualClock(path.clock.now_ms() + 600_000)
    with pytest.raises(PendingWriteError, match=instant):
        new_ledger(config, path.client, path.storage, path.clock, path.ids)
    path.storage.clock = path.clock
    path.clock.advance(121)
    assert new_ledger(config, path.client, path.storage, path.clock, path.ids).rolled_back == [instant]
    assert load_timeline(path.storage).pending() == ()


def test_new_ledger_of_a_table_without_commits_starts_at_epoch_0(path: CommitPath, config: TableConfigFile):
    begun = new_ledger(config, path.client, path.storage, path.clock, path.ids)
    assert (begun.epoch, begun.instant, begun.positions) == (0, None, {})
    go_on(path)
    first_epoch(path)
    path.run_until_idle()
    assert set(path.rows()) == {"a", "b", "c"}


def test_new_ledger_may_be_begun_twice(path: CommitPath, config: TableConfigFile):
    first_epoch(path)
    path.run_until_idle()
    lose_topics(path)
    path.storage.create(LANE_FUNCTION_PATH, b"java-hash-sum")
    first = new_ledger(config, path.client, path.storage, path.clock, path.ids)
    assert not path.storage.exists(LANE_FUNCTION_PATH), "new topics may get lanes by another function"
    path.clock.advance(5)
    assert new_ledger(config, path.client, path.storage, path.clock, path.ids) == first
    go_on(path)
    second_epoch(path)
    path.run_until_idle()
    check_end(path)


def test_new_ledger_knows_our_last_epoch_when_others_archived_its_commit(
    path: CommitPath, config: TableConfigFile, monkeypatch: pytest.MonkeyPatch
):
    first_epoch(path)
    path.run_until_idle()
    state = path.state()
    assert path.context is not None
    kept = msgspec.structs.replace(state.committed, source_next={"in:0": 7})
    state.committed = kept
    path.client.admin().create_topics([TopicSpec("in", 1)])
    for _ in range(9):
        path.broker.produce(TopicPartition("in", 0), None, b"x", ())
    path.storage.replace(INPUT_TOPICS_PATH, recorded_input(path, "in"))
    LedgerRecorder(path.context.publishing).keep(state)
    lose_topics(path)
    monkeypatch.setattr(new_ledger_module, "newest_epoch", lambda *_: None)
    begun = new_ledger(config, path.client, path.storage, path.clock, path.ids)
    assert (begun.epoch, begun.instant, begun.positions) == (1, kept.instant, {"in:0": 7})


def test_new_ledger_gives_the_table_another_identity(path: CommitPath, config: TableConfigFile):
    first_epoch(path)
    path.run_until_idle()
    lose_topics(path)
    new_ledger(config, path.client, path.storage, path.clock, path.ids)
    first = known_ledger_id(path.storage)
    state = path.state()
    assert state.ledger == first
    assert state.location == location_of(path.storage)
    path.clock.advance(5)
    new_ledger(config, path.client, path.storage, path.clock, path.ids)
    assert known_ledger_id(path.storage) not in ("", first)


def test_new_ledger_takes_the_index_with_as_many_shards_as_it_has(path: CommitPath, config: TableConfigFile):
    """Another engine built it anew with 10, and nobody can have it built with the former number."""
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    claim_with(path, 2)
    OtherEngine(path.storage, path.clock, path.action).build_index(10)
    with pytest.raises(UnsupportedTableError, match=r"has 10 shards.*topics are made for 2"):
        claim_with(path, 10)
    new_ledger(config, path.client, path.storage, path.clock, path.ids)
    assert path.state().shards == 0, "the first coordinator says it"
    claim_with(path, 10)
    assert path.state().shards == 10
    with pytest.raises(UnsupportedTableError, match=r"has 2 shards.*topics are made for 10"):
        claim_with(path, 2)


def test_new_ledger_leaves_the_topics_of_a_table_elsewhere_alone(path: CommitPath, config: TableConfigFile):
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    claim_from(path, TableLocation("/production", "1:1"))
    before = path.state()
    with pytest.raises(MovedOrCopiedError, match=r"/production.*--moved.*--copied"):
        new_ledger(config, path.client, path.storage, path.clock, path.ids)
    with pytest.raises(MovedOrCopiedError, match="/production"):
        recover(config, path.client, path.storage, path.clock, path.ids)
    assert path.state() == before, "nothing was touched"
    assert take_over_moved(config, path.client, path.storage, path.clock, path.ids) == location_of(
        path.storage
    )
    recover(config, path.client, path.storage, path.clock, path.ids)


def test_a_check_of_a_read_only_copy_says_that_it_is_one(
    path: CommitPath, config: TableConfigFile, monkeypatch: pytest.MonkeyPatch
):
    first_epoch(path)
    die_at(path, CoordinatorFailpoint.AFTER_INFLIGHT)
    claim_from(path, TableLocation("/production", "1:1"))

    def read_only(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(LocalStorage, "make_dir", read_only)
    monkeypatch.setattr(LocalStorage, "create", read_only)
    with pytest.raises(MovedOrCopiedError, match="/production"):
        check_new_ledger(config, path.client, path.storage, path.clock, path.ids)


def test_moved_is_refused_while_the_former_table_is_still_there(
    path: CommitPath, config: TableConfigFile, tmp_path: Path
):
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    former = LocalStorage(tmp_path / "former")
    former.create(PROPERTIES_PATH, b"production's")
    claim_from(path, location_of(former))
    with pytest.raises(MovedOrCopiedError, match="this one is a copy"):
        take_over_moved(config, path.client, path.storage, path.clock, path.ids)


@contextmanager
def decisions_of(path: CommitPath) -> Iterator[tuple[DecisionsLog, FoldReader]]:
    """A process of its own, with what the topics say."""
    reader = path.fold_reader()
    log = DecisionsLog(
        path.client, path.topics.epochs, f"{TABLE}-coordinator", reader, path.clock, lambda _: None
    )
    try:
        yield log, reader
    finally:
        log.close()
        reader.close()


def claim_from(path: CommitPath, location: TableLocation) -> None:
    """A coordinator of this version claimed from there."""
    with decisions_of(path) as (log, _):
        log.claim("production", ledger_id(path.storage, path.ids), location)


def claim_with(path: CommitPath, shards: int) -> None:
    """As a coordinator starts that counted so many shards."""
    with decisions_of(path) as (log, reader):
        reader.catch_up()
        publication = open_publication(path.storage, path.clock, path.ids)
        take_over(publication, log, lambda: reader.fold, "x", ledger_id(path.storage, path.ids), shards)
