"""Positions of the input, with a shuffle stage and without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.unit.commit_coordinator.admin_parts import admin_service as parts
from tests.unit.epoch_protocol.builders import tagged
from tests.unit.typed_status import IDLE
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.admin.service import AdminService
from tidemark.commit_coordinator.commit.input_positions import InputPositions
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard, take_view
from tidemark.commit_coordinator.domain.actions import Wait
from tidemark.commit_coordinator.domain.next_action import Observed
from tidemark.commit_coordinator.input.ends import holds_records, input_ends
from tidemark.commit_coordinator.input.lag import InputLag
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.state import Committed, CountedTagged, FoldState, LaneState
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec

SHARDED = InputPositions("flights")


def half_way() -> FoldState:
    """Lane 0 is committed up to 3 and tagged up to 9, lane 1 not committed."""
    state = FoldState(
        committed=Committed(epoch=1, through=4, keyed_next={"0": 3}, source_next={"in:0": 70}),
        assign_lanes={"0": LaneState(next=9), "1": LaneState(next=5)},
        shuffle_lanes={"in:0": LaneState(next=90)},
    )
    state.tagged = [
        CountedTagged(5, tagged({"0": (3, 9)}, {"0": 0}, rows=4)),
        CountedTagged(8, tagged({"1": (0, 5)}, {"1": 0}, rows=4)),
    ]
    return state


def test_with_a_shuffle_stage_its_lanes_are_the_inputs() -> None:
    inputs, state = InputPositions(), half_way()
    assert inputs.committed(state) == {"in:0": 70}
    assert inputs.taken(state) == {"in:0": 90}


def test_input_partitioned_by_lane_has_the_assign_stages_positions() -> None:
    state = half_way()
    assert SHARDED.committed(state) == {"flights:0": 3}
    assert SHARDED.committed_by(state, 5) == {"flights:0": 9}
    assert SHARDED.committed_by(state, 8) == {"flights:0": 9, "flights:1": 5}
    assert SHARDED.taken(state) == {"flights:0": 9, "flights:1": 5}


def admin_service(
    board: ViewBoard, targets: dict[str, int], holds: Callable[[str, int, int], bool]
) -> AdminService:
    return parts(board=board, targets=lambda: targets, holds_records=holds)


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_flush_waits_for_records_not_for_markers(end: str) -> None:
    """The topic of a transactional producer ends with a marker, which no position ever passes."""
    clock = ManualClock()
    client = MemoryKafkaClient(MemoryBroker(clock, SeededIds(1)))
    client.admin().create_topics([TopicSpec("in", 2)])
    lane, trimmed = TopicPartition("in", 0), TopicPartition("in", 1)
    producer = client.producer("upstream")
    producer.init()
    producer.begin()
    producer.produce(lane, b"record")
    producer.produce(trimmed, b"record")
    producer.flush()
    (producer.commit if end == "commit" else producer.abort)()
    ends = input_ends(client.admin(), ["in:0", "in:1"])
    assert ends == {"in:0": 2, "in:1": 2}
    client.admin().delete_records({trimmed: 2})
    board = ViewBoard()
    found: list[EmptyRange] = []

    def flush() -> None:
        holds = partial(holds_records, client.admin(), lambda: found)
        admin_service(board, ends, holds).Flush(pb.FlushRequest(table="t", timeout_ms=300), None)

    with pytest.raises(DeadlineExceededError, match="in:0"):
        flush()
    # The lane's owner has read on: behind its position there is nothing but the marker, or nothing at all.
    found.append(EmptyRange("in", 0, 1 if end == "commit" else 0, 2))
    if end == "commit":
        with pytest.raises(DeadlineExceededError, match="in:0"):
            flush()
        board.show(CoordinatorView(epoch=1, source_next={"in:0": 1}))
    flush()


def test_a_flush_calls_nothing_committed_that_was_deleted_unread() -> None:
    """Also before the lane's owner has found it, and while there is none."""
    client = MemoryKafkaClient(MemoryBroker(ManualClock(), SeededIds(1)))
    admin = client.admin()
    admin.create_topics([TopicSpec("in", 1)])
    producer = client.plain_producer()
    for _ in range(4):
        producer.produce("in", b"record", partition=0)
    producer.flush()
    admin.delete_records({TopicPartition("in", 0): 4})
    board = ViewBoard()
    board.show(CoordinatorView(epoch=1, source_next={"in:0": 2}, taken_next={"in:0": 2}))
    service = admin_service(board, {"in:0": 4}, partial(holds_records, admin, tuple))
    with pytest.raises(DeadlineExceededError, match="in:0"):
        service.Flush(pb.FlushRequest(table="t", timeout_ms=300), None)
    # Passed over, as an operator asked.
    board.show(CoordinatorView(epoch=2, source_next={"in:0": 4}, taken_next={"in:0": 4}))
    service.Flush(pb.FlushRequest(table="t", timeout_ms=300), None)


def lag(ends: dict[str, int], holds: Callable[[str, int, int], bool], **view: Any) -> tuple[int, int]:
    found = InputLag(lambda: ends, holds, ManualClock()).document(CoordinatorView(**view))
    return found["input_offsets_not_shuffled"], found["input_offsets_not_committed"]


def test_markers_of_transactional_producers_are_no_lag() -> None:
    """Records at 0 and 2, their markers at 1 and 3, an aborted record and its marker behind them."""
    clock = ManualClock()
    client = MemoryKafkaClient(MemoryBroker(clock, SeededIds(1)))
    client.admin().create_topics([TopicSpec("in", 1)])
    producer = client.producer("upstream")
    producer.init()
    for end in (producer.commit, producer.commit, producer.abort):
        producer.begin()
        producer.produce(TopicPartition("in", 0), b"record")
        producer.flush()
        end()
    found = [EmptyRange("in", 0, 3, 6)]
    ends, holds = input_ends(client.admin(), ["in:0"]), partial(holds_records, client.admin(), lambda: found)
    assert ends == {"in:0": 6}
    # The second record lies at offset 2: whoever has taken it stands at 3.
    assert lag(ends, holds, taken_next={"in:0": 3}, source_next={"in:0": 3}) == (0, 0)
    assert lag(ends, holds, taken_next={"in:0": 3}, source_next={"in:0": 1}) == (0, 2)
    assert lag(ends, holds, taken_next={"in:0": 1}, source_next={"in:0": 1}) == (5, 5)


def test_the_look_for_lag_is_bounded_and_what_is_empty_is_remembered() -> None:
    asked: list[tuple[str, int, int]] = []

    def holds(lane: str, first: int, end: int) -> bool:
        asked.append((lane, first, end))
        return False

    ends = {f"in:{number}": 7 for number in range(20)}
    idle = CoordinatorView(taken_next=dict.fromkeys(ends, 5), source_next=dict.fromkeys(ends, 5))
    found = InputLag(lambda: ends, holds, ManualClock())
    assert [sum(found.document(idle).values()) for _ in range(3)] == [16, 0, 0]
    assert len(asked) == 20
    ends["in:0"] = 9
    assert sum(found.document(idle).values()) == 0
    assert asked[20:] == [("in:0", 7, 9)]
    assert lag({"in:0": 1_001}, holds) == (1_001, 1_001)
    assert lag({"in:0": 7}, holds, planned_epoch=1) == (7, 7)
    assert lag({"in:0": 7}, holds, uncommitted_transactions=1) == (7, 7)
    assert len(asked) == 21


def test_a_flush_of_input_partitioned_by_lane_ends() -> None:
    """Without a shuffle stage nothing ever moves `committed.source_next`."""
    board, state = ViewBoard(), half_way()
    state.committed = Committed(epoch=2, through=8, instant="T2", keyed_next={"0": 9, "1": 5})
    board.show(take_view(Fold(state), Observed(), Wait("nothing"), term=1, now_ms=5, inputs=SHARDED))
    targets = {"flights:0": 9, "flights:1": 5}
    admin = admin_service(board, targets, lambda *_: True)
    answer = admin.Flush(pb.FlushRequest(table="t", timeout_ms=50), None)
    assert (answer.epoch, answer.instant) == (2, "T2")
    status = admin.Status(pb.StatusRequest(table="t"), None)
    assert json.loads(status.json)["table"] == status.status.table == IDLE["table"]
