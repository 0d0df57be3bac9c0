"""A coordinator in rounds: what others ask for is done between two actions; a silent broker ends nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.simulation.commit_path import CommitPath
from tests.simulation.scripted_epochs import check_end, first_epoch, second_epoch
from tests.simulation.scripted_tagger import SHARDS, TABLE
from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.commit_coordinator.calls.attempt_handoff import AttemptHandoff
from tidemark.commit_coordinator.calls.inbox import FlushNow, Inbox, Order, PauseServices, PauseTagging
from tidemark.commit_coordinator.calls.pausing import Pause
from tidemark.commit_coordinator.calls.service import CommitService, Facts
from tidemark.commit_coordinator.commit import trimming
from tidemark.commit_coordinator.commit.trimming import Trimmer
from tidemark.commit_coordinator.commit.view import ViewBoard
from tidemark.commit_coordinator.loop import TableLoop
from tidemark.commit_coordinator.refusals import CoordinatorStoppedError
from tidemark.hudi_format.table_config import TableType
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError


class Rounds:
    """A table whose coordinator runs in rounds; ``listed`` counts how often file sizes were loaded."""

    def __init__(self, folder: Path) -> None:
        self.path = CommitPath(folder, TableType.MERGE_ON_READ, ordered=True)
        coordinator, context = self.path.start_coordinator(), self.path.context
        assert context is not None
        self.inbox, self.board, self.listed = Inbox(), ViewBoard(), 0
        topics = self.path.topics
        self.trimmer = Trimmer(self.path.client.admin(), {}, topics.ledger_partition, topics.epochs_partition)
        self.loop = TableLoop(coordinator, context, self.trimmer, self.inbox, self.board)

    def _list(self) -> None:
        self.listed += 1

    def run(self, rounds: int = 12) -> None:
        for _ in range(rounds):
            self.loop.round(self._list)
            self.path.write_open_attempt()
            self.path.clock.advance(0.06)


def silent(*_: object) -> None:
    raise KafkaUnavailableError("nobody there")


def test_an_owners_wish_for_a_rewind_reaches_the_decisions_once(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    path = rounds.path
    first_epoch(path)
    rounds.run()
    path.tagger.tag([], consumed=2)
    service = CommitService(
        Facts(TABLE, SHARDS, 1, 3_000, 1),
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        AttemptHandoff(),
        str,
        lambda _: Pause(False, ""),
        lambda: True,
        rounds.inbox,
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
    )
    for _ in range(2):
        service.WantRewind(
            pb.WantRewindRequest(table=TABLE, process_id="a", generation=0, reason="torn"), None
        )
    rounds.run()
    state = path.state()
    assert (state.generation, state.committed.epoch) == (1, 1)
    assert rounds.listed == 1
    assert rounds.board.current.generation == 1


def test_a_broker_that_does_not_answer_ends_neither_trimming_nor_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimming, "EPOCHS_BETWEEN", 1)
    rounds = Rounds(tmp_path)
    path, coordinator = rounds.path, rounds.loop._coordinator
    refused: list[str] = []

    def counted(*_: object) -> None:
        refused.append("")
        silent()

    with monkeypatch.context() as patched:
        patched.setattr(Trimmer, "run_if_due", counted)
        patched.setattr(coordinator, "pause", counted)
        rounds.inbox.put(PauseTagging(True, "by hand"))
        first_epoch(path)
        rounds.run()
    assert len(refused) == 24
    assert path.state().committed.epoch == 1
    second_epoch(path)
    rounds.run()
    assert path.state().paused, "the request was kept"
    check_end(path)


@pytest.mark.parametrize("order", [PauseTagging, PauseServices])
def test_of_two_orders_the_later_one_holds_if_the_earlier_one_had_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: type[PauseTagging | PauseServices]
) -> None:
    """An operator pauses, hears nothing because Kafka does not answer, gives it up, and resumes."""
    rounds = Rounds(tmp_path)
    pause, resume = order(True, "maintenance"), order(False, "")
    assert rounds.path.context is not None

    with monkeypatch.context() as patched:
        patched.setattr(rounds.path.context.log, "append", silent)
        rounds.inbox.put(pause)
        rounds.run(1)
        rounds.inbox.put(resume)
        rounds.run(2)
        assert (pause.taken.done(), resume.taken.done()) == (False, False)
    rounds.run(2)
    state = rounds.path.state()
    assert (state.paused, state.services_paused) == (False, False)
    assert (pause.taken.done(), resume.taken.done()) == (True, True)


def test_what_is_no_order_does_not_wait_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tidemark flush` asks five times a second: behind an order that waits its requests would fill the
    inbox, and nobody could resume any more.
    """
    rounds = Rounds(tmp_path)
    orders: list[Order] = [
        PauseTagging(True, "maintenance"),
        PauseTagging(False, ""),
        PauseServices(True, "upgrade"),
    ]
    assert rounds.path.context is not None
    with monkeypatch.context() as patched:
        patched.setattr(rounds.path.context.log, "append", silent)
        for order in orders:
            rounds.inbox.put(FlushNow())
            rounds.inbox.put(order)
        rounds.loop._coordinator.seen.planned_at_ms = 1
        rounds.loop._take_requests()
        assert rounds.loop._coordinator.seen.planned_at_ms == 0
        left = rounds.inbox.take_all()
        assert left == orders
        rounds.inbox.put_back(left)
    rounds.run(2)
    state = rounds.path.state()
    assert (state.paused, state.services_paused) == (False, True)
    assert all(order.taken.done() for order in orders)


def test_orders_to_a_coordinator_that_stops_for_good_are_refused(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    orders: list[PauseTagging | PauseServices] = [PauseTagging(True, "maintenance"), PauseServices(False, "")]
    for order in orders:
        rounds.inbox.put(order)
    rounds.loop._coordinator.stop_for_good(ValueError("a gap"))
    stop = threading.Event()
    orders[-1].taken.add_done_callback(lambda _: stop.set())
    rounds.loop._rest(stop)
    for order in orders:
        with pytest.raises(CoordinatorStoppedError, match="a gap"):
            order.taken.result(0)


def test_an_order_is_called_done_when_the_view_has_it(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    rounds.run(1)
    pause = PauseTagging(True, "maintenance")
    shown: list[bool] = []
    pause.taken.add_done_callback(lambda _: shown.append(rounds.board.current.paused))
    rounds.inbox.put(pause)
    rounds.loop.round(rounds._list)
    assert shown == [True]
