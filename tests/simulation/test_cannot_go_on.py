"""When a coordinator cannot go on: it stays, says why, keeps all, and goes on once the cause is repaired."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.commit_path import ATTEMPTS_MAX, CommitPath
from tests.simulation.scripted_epochs import (
    GROUP_A,
    check_end,
    check_traces,
    first_epoch,
    row,
    second_epoch,
)
from tests.simulation.scripted_tagger import TABLE
from tests.unit.commit_coordinator.admin_parts import admin_service
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.calls.inbox import Inbox
from tidemark.commit_coordinator.calls.pausing import pause_of
from tidemark.commit_coordinator.commit import trimming
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.commit.stored_documents import STORE
from tidemark.commit_coordinator.commit.trimming import Trimmer
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.coordinator import Coordinator
from tidemark.commit_coordinator.domain.membership import Uncommitted
from tidemark.commit_coordinator.domain.next_action import RETRY_MS_MAX, Limits, Observed
from tidemark.commit_coordinator.loop import TableLoop
from tidemark.commit_coordinator.refusals import EpochNotGivenUpError
from tidemark.commit_coordinator.trouble import SHOWN_S
from tidemark.config.model import LimitsConfig
from tidemark.epoch_protocol.batches import DataOp
from tidemark.epoch_protocol.entries import Stage
from tidemark.hudi_format.table_config import TableType
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.stream_runtime.kafka.errors import KafkaConfigError, KafkaError, MissingTopicError

LIMITS = LimitsConfig()
REFUSALS = [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS]


class Rounds:
    """A table whose coordinator runs in rounds, with the admin service beside it."""

    def __init__(self, folder: Path) -> None:
        self.path = CommitPath(folder, TableType.MERGE_ON_READ, ordered=True)
        first_epoch(self.path)
        self.path.run_until_idle()
        second_epoch(self.path)
        context = self.path.context
        assert context is not None
        assert self.path.coordinator is not None
        self.coordinator: Coordinator = self.path.coordinator
        self.inbox, self.board = Inbox(), ViewBoard()
        topics = self.path.topics
        self.trimmer = Trimmer(self.path.client.admin(), {}, topics.ledger_partition, topics.epochs_partition)
        self.loop = TableLoop(self.coordinator, context, self.trimmer, self.inbox, self.board)
        self.admin = admin_service(TABLE, board=self.board, inbox=self.inbox)

    @property
    def view(self) -> CoordinatorView:
        return self.board.current

    def round(self, write: Callable[[], object] | None = None) -> None:
        self.loop.round(lambda: None)
        (write or self.path.write_open_attempt)()
        self.path.clock.advance(0.06)

    def until(self, holds: Callable[[CoordinatorView], bool], rounds: int = 60) -> None:
        for _ in range(rounds):
            if holds(self.view):
                return
            self.round()
        raise AssertionError(self.view)

    def retry(self, epoch: int) -> int:
        """As `tidemark epoch retry` does, the loop running until the epoch is taken up: in further rounds it
        might be given up again before whoever asked has seen that.
        """
        answer: list[int] = []
        request = pb.RetryEpochRequest(table=TABLE, epoch=epoch)
        asking = threading.Thread(target=lambda: answer.append(self.admin.RetryEpoch(request, None).attempt))
        asking.start()
        end = time.monotonic() + 60.0
        while asking.is_alive() and time.monotonic() < end:
            if self.view.blocked_epoch is None:
                asking.join(0.05)
                continue
            self.loop.round(lambda: None)
            self.path.clock.advance(0.06)
        asking.join(60.0)
        return answer[0]


@contextmanager
def refusing(path: CommitPath, number: int, *methods: str) -> Iterator[list[str]]:
    """The table's storage answers every call of these methods with an error of the system."""
    asked: list[str] = []

    def refuse(*args: Any, **_: Any) -> Any:
        asked.append(str(args[0]))
        raise OSError(number, os.strerror(number), args[0])

    for method in methods:
        setattr(path.storage, method, refuse)
    try:
        yield asked
    finally:
        for method in methods:
            delattr(path.storage, method)


@pytest.mark.parametrize("number", REFUSALS, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("when", ["plan", "write", "decided"])
def test_storage_that_refuses_stops_tagging_and_is_tried_again_by_itself(
    tmp_path: Path, number: int, when: str
) -> None:
    rounds = Rounds(tmp_path)
    path = rounds.path
    if when != "plan":
        rounds.loop.round(lambda: None)
        path.write_open_attempt()
    if when == "decided":
        rounds.loop.round(lambda: None)
        assert path.state().decided is not None
    with refusing(path, number, "publish", "create", "make_dir", "rename") as asked:
        for _ in range(5):
            path.clock.advance(0.06)
            rounds.loop.round(lambda: None)
        assert asked
        assert os.strerror(number) in (rounds.view.trouble or "")
        assert "tries again by itself" in (rounds.view.trouble or "")
        for stage in Stage:
            assert pause_of(stage, rounds.view, Uncommitted(), LIMITS, 1).reason == rounds.view.trouble
        assert rounds.view.halted is None
        assert path.state().committed.epoch == 1
        assert path.state().attempts <= 1, "no attempt is given up for it"
    rounds.until(lambda view: view.epoch == 2)
    assert rounds.view.trouble is None
    assert not pause_of(Stage.ASSIGN, rounds.view, Uncommitted(), LIMITS, 1).paused
    check_end(path)


def refused_by_kafka(error: KafkaError) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    return refuse


@pytest.mark.parametrize("what", ["reading", "deciding", "deciding and beginning"])
@pytest.mark.parametrize(
    "error", [KafkaConfigError("this user lacks an ACL"), MissingTopicError("no t.ledger[0]")], ids=type
)
def test_kafka_that_refuses_what_it_took_is_tried_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, error: KafkaError
) -> None:
    """A tool sets the ACLs of the table's user anew: for some seconds it has none, or no WRITE on the
    decisions. A producer begins without that right: that of its transactional id is another one.
    """
    rounds = Rounds(tmp_path)
    path = rounds.path
    refuse = refused_by_kafka(error)
    with monkeypatch.context() as refusing:
        if what == "reading":
            refusing.setattr(FoldReader, "poll", refuse)
        else:
            refusing.setattr(DecisionsLog, "_transact", refuse)
        if what == "deciding and beginning":
            refusing.setattr(DecisionsLog, "_replace_producer", refuse)
        for _ in range(5):
            rounds.loop.round(lambda: None)
        assert f"Kafka refuses: {error}. " in (rounds.view.trouble or "")
        assert "tries again by itself" in (rounds.view.trouble or "")
        assert rounds.view.trouble_of_kafka
        assert (rounds.view.halted, rounds.view.stopped) == (None, False)
        for stage in Stage:
            assert pause_of(stage, rounds.view, Uncommitted(), LIMITS, 1).reason == rounds.view.trouble
    rounds.loop.round(lambda: None)
    assert rounds.view.trouble, "a client does not say in every round that it may not do something"
    rounds.until(lambda view: view.epoch == 2)
    rounds.until(lambda view: view.trouble is None, rounds=int(2 * SHOWN_S / 0.06))
    check_end(path)


def test_records_that_kafka_will_not_delete_stop_nothing_and_are_told_until_it_deletes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimming, "EPOCHS_BETWEEN", 1)
    monkeypatch.setattr(trimming, "_SECONDS_BETWEEN_MIN", 0)
    rounds = Rounds(tmp_path)
    admin, ledger = rounds.trimmer.admin, rounds.path.topics.ledger_partition
    assert rounds.path.context is not None
    rounds.trimmer.run_if_due(rounds.path.context)
    with monkeypatch.context() as refusing:
        refusing.setattr(admin, "delete_records", refused_by_kafka(KafkaConfigError("no right to delete")))
        rounds.until(lambda view: view.epoch == 2 and view.untrimmed != "")
        for _ in range(20):
            rounds.round()
            assert rounds.view.untrimmed == "no right to delete"
            assert rounds.view.trouble is None
        assert admin.start_offset(ledger) == 0
        assert len(rounds.path.storage.list(STORE)) == 2, "the documents go all the same"
    check_end(rounds.path)
    rounds.path.tag([(row("z", 9, 9), DataOp.INSERT, GROUP_A)])
    rounds.until(lambda view: view.untrimmed == "")
    assert admin.start_offset(ledger) > 0


def give_up(rounds: Rounds) -> None:
    """Every attempt fails at the writer."""
    path = rounds.path
    for _ in range(20 * ATTEMPTS_MAX):
        rounds.loop.round(lambda: None)
        path.clock.advance(0.06)
        if rounds.view.halted is not None:
            return
        if path.attempts.wait_for_unreported(0.0) is not None:
            path.fail_open_attempt(rewind=False)
    raise AssertionError(rounds.view)


def test_an_epoch_that_was_given_up_is_retried_without_a_new_coordinator(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    give_up(rounds)
    view = rounds.view
    assert view.blocked_epoch == 2
    assert "epoch 2 could not be written in 8 attempts (the last: disk full)" in (view.halted or "")
    assert "`tidemark epoch retry 2`" in (view.halted or "")
    assert pause_of(Stage.ASSIGN, view, Uncommitted(), LIMITS, 1).paused
    check_traces(rounds.path)
    assert rounds.retry(2) == ATTEMPTS_MAX + 1
    rounds.until(lambda view: view.epoch == 2)
    assert not pause_of(Stage.ASSIGN, rounds.view, Uncommitted(), LIMITS, 1).paused
    assert rounds.coordinator is rounds.path.coordinator
    check_end(rounds.path)


def test_a_retry_that_fails_as_well_is_given_up_again(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    for _ in range(2):
        give_up(rounds)
        before = rounds.path.state().attempts
        assert rounds.retry(2) == before + 1
    rounds.until(lambda view: view.epoch == 2)
    check_end(rounds.path)


def test_an_epoch_that_is_not_the_one_given_up_is_not_retried(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    rounds.round(lambda: None)

    def refused(epoch: int) -> str:
        with pytest.raises(EpochNotGivenUpError) as error:
            rounds.admin.RetryEpoch(pb.RetryEpochRequest(table=TABLE, epoch=epoch), None)
        return str(error.value)

    assert refused(1) == "epoch 1 is committed: there is nothing to try again"
    assert refused(2) == "epoch 2 was not given up: attempt 1 is under way"
    assert "the last committed one is 1" in refused(7)
    give_up(rounds)
    assert refused(3) == "epoch 3 is not the one that was given up: that is epoch 2"
    assert rounds.inbox.take_all() == []


def test_attempts_that_fail_are_made_ever_less_often() -> None:
    seen, limits, waits = Observed(), Limits(0, 1, 10, retry_ms=500), []
    for _ in range(9):
        seen.failed(limits, now_ms=1_000)
        waits.append(seen.retry_at_ms - 1_000)
    assert waits[:4] == [500, 1_000, 2_000, 4_000]
    assert waits[-1] == RETRY_MS_MAX
    seen.succeeded()
    assert (seen.failures, seen.retry_at_ms) == (0, 0)


@contextmanager
def running(rounds: Rounds) -> Iterator[list[BaseException]]:
    """The loop on a thread of its own, as in a process; what ended it."""
    stop, ended = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            rounds.loop.run(stop, lambda: None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join(120.0)
        assert not thread.is_alive()


def stopped(rounds: Rounds) -> CoordinatorView:
    found = rounds.board.wait_until(lambda view: view.stopped, 120.0)
    assert found is not None
    return found


@pytest.mark.parametrize("topic", ["ledger", "epochs"])
def test_an_entry_that_nobody_can_read_stops_it_and_it_still_says_why(tmp_path: Path, topic: str) -> None:
    rounds = Rounds(tmp_path)
    names = rounds.path.topics
    at = names.ledger_partition if topic == "ledger" else names.epochs_partition
    offset = rounds.path.broker.produce(at, None, b'{"type": "from_the_future"}', ())
    with running(rounds) as ended:
        view = stopped(rounds)
        assert f"{at.topic}[{at.partition}] offset {offset}: unreadable protocol entry" in (view.halted or "")
        assert "--new-ledger" in (view.halted or "")
        assert view.blocked_epoch is None
        assert pause_of(Stage.SHUFFLE, view, Uncommitted(), LIMITS, 1).paused
        with pytest.raises(EpochNotGivenUpError, match="no retry helps"):
            rounds.admin.RetryEpoch(pb.RetryEpochRequest(table=TABLE, epoch=2), None)
        assert ended == [], "the process stays and answers"


def test_a_commit_of_ours_that_was_undone_stops_it_and_nothing_is_written(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    path = rounds.path
    [completed] = [i for i in path.storage.list(".hoodie/timeline") if "_" in i.name]
    path.storage.delete(completed.path)
    before = path.files()
    with running(rounds) as ended:
        assert "a commit of ours was undone" in (stopped(rounds).halted or "")
        assert "--new-ledger" in (rounds.view.halted or "")
        assert ended == []
    assert {name for name in path.files() if "/tidemark/" not in name} <= set(before)
    assert path.state().planned is None


def test_a_stopped_coordinator_keeps_the_heartbeat_of_its_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may roll the instant back while somebody repairs what is wrong."""
    rounds = Rounds(tmp_path)
    path = rounds.path
    rounds.loop.round(lambda: None)
    assert path.state().planned is not None
    path.broker.produce(path.topics.ledger_partition, None, b"?", ())
    kept: list[str] = []
    monkeypatch.setattr(path.storage, "touch", lambda name, create=True: kept.append(name))
    with running(rounds):
        stopped(rounds)
        end = time.monotonic() + 60.0
        while not kept:
            assert time.monotonic() < end
            path.clock.advance(30.0)
            time.sleep(0.05)
    assert kept[0].startswith(".hoodie/.heartbeat/")


def test_files_that_cannot_be_listed_after_a_rewind_are_listed_later(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    tries: list[int] = []

    def list_files() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    rounds.coordinator.want_rewind("torn", 0)
    for _ in range(8):
        rounds.loop.round(list_files)
        rounds.path.clock.advance(0.06)
    assert len(tries) == 3
    assert rounds.path.state().generation == 1
