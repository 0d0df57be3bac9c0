"""What the coordinator says of lanes that stand still."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from testing.clock import ManualClock
from testing.ids import SeededIds
from tidemark.commit_coordinator.calls.service import stopped_lane
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.domain.membership import Member
from tidemark.commit_coordinator.input.skips import _WAYS_ON, InputSkips
from tidemark.commit_coordinator.input.stopped_lanes import (
    StoppedLanes,
    stopped_states,
    stopped_warnings,
)
from tidemark.commit_coordinator.refusals import LaneNotStoppedError, SkipFailedError
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.stopped_lanes import SkipResult, StoppedLane, StopReason
from tidemark.index_assigner.slots.membership import _stopped_message
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.ports import TopicPartition
from tidemark.table_status.warnings import WarningKind

BROKEN = StoppedLane(Stage.SHUFFLE, "in:1", "in", 1, 7, StopReason.UNREADABLE, "broken zstd", 1_000)
OTHER = StoppedLane(Stage.SHUFFLE, "in:0", "in", 0, 3, StopReason.UNREADABLE, "bad checksum", 2_000)


def test_what_owners_report_survives_the_wire() -> None:
    assert stopped_lane(Stage.SHUFFLE, _stopped_message(BROKEN)) == BROKEN


def test_a_reason_of_a_newer_version_is_no_error() -> None:
    message = _stopped_message(BROKEN)
    message.reason = "struck-by-lightning"
    assert stopped_lane(Stage.SHUFFLE, message).reason is StopReason.UNREADABLE


def test_a_lane_keeps_its_age_from_one_owner_to_the_next() -> None:
    clock = ManualClock()
    now_ms = clock.now_ms()
    first = replace(BROKEN, since_ms=now_ms)
    reported = [first]
    lanes = StoppedLanes(lambda: reported, clock)
    assert lanes.current() == [first]
    clock.advance(60.0)
    reported[:] = []
    assert lanes.current() == []
    reported[:] = [replace(BROKEN, since_ms=now_ms + 60_000)]
    assert lanes.current() == [first]
    reported[:] = [replace(BROKEN, offset=8, since_ms=now_ms + 60_000)]
    assert lanes.current() == reported
    clock.advance(3_600.0)
    reported[:] = [replace(BROKEN, since_ms=now_ms + 3_660_000)]
    lanes.current()
    assert lanes.current() == reported


def test_the_coordinators_own_reason_goes_first_until_it_is_released() -> None:
    lanes = StoppedLanes(lambda: [BROKEN, OTHER], ManualClock())
    recreated = replace(BROKEN, reason=StopReason.TOPIC_RECREATED, detail="another id", since_ms=5)
    lanes.stop(recreated)
    assert lanes.current() == [OTHER, recreated]
    lanes.release(Stage.SHUFFLE, "in:1")
    assert lanes.current() == [OTHER, BROKEN]
    assert stopped_states([OTHER])[0].offset == 3
    (warning,) = stopped_warnings([BROKEN])
    assert "in[1] is not read any further than offset 7 (unreadable): broken zstd" in warning.text
    assert warning.kind is WarningKind.LANE_STOPPED


def test_only_the_offset_at_which_a_lane_stands_can_be_skipped() -> None:
    recreated = replace(OTHER, reason=StopReason.TOPIC_RECREATED)
    skips = InputSkips(lambda: [BROKEN, recreated], ViewBoard(), SeededIds(1), SystemClock(), lambda *_: None)
    for place, offset, said in (
        (TopicPartition("in", 1), 8, "stands at offset 7, not at 8"),
        (TopicPartition("in", 2), 7, "is not stopped"),
        (TopicPartition("other", 1), 7, "is not stopped"),
        (TopicPartition("in", 0), 3, "accept-topic in"),
    ):
        with pytest.raises(LaneNotStoppedError, match=said):
            skips.skip(place, offset, 5.0)
    assert not skips.orders(Stage.SHUFFLE, ["in:1"])
    with pytest.raises(DeadlineExceededError, match=r"in\[1\]"):
        skips.skip(TopicPartition("in", 1), 7, 0.3)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (StopReason.TOPIC_RECREATED, "`tidemark input accept-topic in` goes on"),
        (StopReason.TOPIC_MISSING, "create the topic, then `tidemark input accept-topic in`"),
        (StopReason.TOPIC_GROWN, "adopt --new-ledger"),
    ],
)
def test_no_record_is_skipped_where_the_topic_is_the_cause(reason: StopReason, said: str) -> None:
    """Refused at once, at the right offset, too: nobody holds such a lane, so nobody could do it."""
    stopped = replace(BROKEN, reason=reason)
    skips = InputSkips(lambda: [stopped], ViewBoard(), SeededIds(1), ManualClock(), lambda *_: None)
    with pytest.raises(LaneNotStoppedError, match=said):
        skips.skip(TopicPartition("in", 1), 7, 180.0)


def test_every_reason_of_a_topic_has_a_way_on() -> None:
    assert {each for each in StopReason if each.is_of_topic} == set(_WAYS_ON)


@pytest.mark.parametrize("is_old_first", [True, False])
def test_of_a_topic_that_was_made_again_the_lane_of_now_is_meant(is_old_first: bool) -> None:
    anew = replace(BROKEN, lane="in@10:1", offset=4)
    both = [replace(BROKEN, lane="in@9:1"), anew]
    found = both if is_old_first else both[::-1]
    asked: list[str] = []

    def holder(_: Stage, lane: str) -> None:
        asked.append(lane)

    skips = InputSkips(lambda: found, ViewBoard(), SeededIds(1), SystemClock(), holder)
    with pytest.raises(LaneNotStoppedError, match="stands at offset 4, not at 7"):
        skips.skip(TopicPartition("in", 1), 7, 5.0)
    with pytest.raises(DeadlineExceededError):
        skips.skip(TopicPartition("in", 1), 4, 0.1)
    assert set(asked) == {"in@10:1"}


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (["a", "a"], "a looks for the end of the record batch"),
        (["a", None], "nobody holds lane in:1 any more.*Start an assigner"),
        (["a", "b"], "b took lane in:1 over meanwhile"),
        ([None, None], "nobody holds lane in:1"),
    ],
)
def test_a_skip_that_nobody_answers_says_what_became_of_the_owner(then: list[str | None], said: str) -> None:
    holders = iter(then)

    def holder(stage: Stage, lane: str) -> Member | None:
        assert (stage, lane) == (Stage.SHUFFLE, "in:1")
        name = next(holders)
        return None if name is None else Member(name, 0, "at", 0)

    skips = InputSkips(lambda: [BROKEN], ViewBoard(), SeededIds(1), SystemClock(), holder)
    text = rf"in\[1\] has not moved past offset 7 in time: {said}.*safe"
    with pytest.raises(DeadlineExceededError, match=text):
        skips.skip(TopicPartition("in", 1), 7, 0.3)


@pytest.mark.parametrize("failure", ["", "no answer"])
def test_a_skip_returns_once_the_ledger_has_it_or_says_why_not(failure: str) -> None:
    board = ViewBoard()
    skips = InputSkips(lambda: [BROKEN], board, SeededIds(1), SystemClock(), lambda *_: None)

    def owner() -> None:
        while not (orders := skips.orders(Stage.SHUFFLE, ["in:0", "in:1"])):
            pass
        (order,) = orders
        assert (order.lane, order.offset) == ("in:1", 7)
        assert not skips.orders(Stage.SHUFFLE, ["in:0"])
        assert not skips.orders(Stage.ASSIGN, ["in:1"])
        skips.done([SkipResult("unknown", 1, 2), SkipResult(order.id, 7, 30, failure)])
        board.show(CoordinatorView(taken_next={"in:1": 31}))

    thread = threading.Thread(target=owner)
    thread.start()
    if failure:
        with pytest.raises(SkipFailedError, match=failure):
            skips.skip(TopicPartition("in", 1), 7, 60.0)
    else:
        assert skips.skip(TopicPartition("in", 1), 7, 60.0)[1:3] == (7, 30)
    thread.join()
